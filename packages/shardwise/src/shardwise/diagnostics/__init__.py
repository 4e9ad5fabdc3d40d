"""What is said when a program is wrong: codes, findings, source locations, and their forms for people and tools."""
