"""Source that is changed and otherwise stays as it is: how a file says our names, what is edited, and the diff."""
