"""Pictures: folders of classes, idx files, numpy archives, tables with pictures or numbers, and what is done to a picture."""
