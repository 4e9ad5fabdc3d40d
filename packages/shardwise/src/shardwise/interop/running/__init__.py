"""What runs on this thread: a check, a recording, a typing rule, code that is not to be checked."""
