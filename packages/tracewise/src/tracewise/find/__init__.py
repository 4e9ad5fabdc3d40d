"""The answers: what failed, what it cost, why it was compiled again. Values in, values out; no file is read here."""
