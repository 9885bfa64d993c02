"""What does a treatment change?"""
