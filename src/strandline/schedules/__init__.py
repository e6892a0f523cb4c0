"""Schedules: backups, verifications and restore drills that are due at times given by cron lines."""
