"""What one running check remembers: the session, the classes that carry types, the origin of gradients."""
