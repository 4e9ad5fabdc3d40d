"""What op rules are written with: labellers of dims, and guards of laws."""
