"""The forms that services read: GitHub, JUnit and SARIF."""
