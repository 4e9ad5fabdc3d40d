"""Numeric truth: is a claimed type right, forward and backward?"""
