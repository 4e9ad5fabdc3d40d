"""Options that several commands have: how they are written, read and put together with the configuration."""
