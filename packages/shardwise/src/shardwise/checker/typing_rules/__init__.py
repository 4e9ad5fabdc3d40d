"""The language in which users write the typing rule of an autograd function."""
