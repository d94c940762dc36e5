"""`manage.py doctor`: checks the installation and says what to do. Why a job waits or failed is another question:
jobs/queue/waiting.py, jobs/doctor.
"""
