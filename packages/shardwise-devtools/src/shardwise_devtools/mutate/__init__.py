"""What would the checker say if this line were wrong? Programs with one mistake each, made and judged by machine."""
