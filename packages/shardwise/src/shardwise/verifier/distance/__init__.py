"""How far are two values apart, is that rounding, and what does the difference look like?"""
