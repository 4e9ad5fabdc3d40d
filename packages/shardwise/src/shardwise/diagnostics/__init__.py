"""What is said when a program is wrong: codes, findings, places in the source, and their forms for people and tools."""
