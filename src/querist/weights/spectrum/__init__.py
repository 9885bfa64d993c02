"""Layer matrices and their eigenvalue spectra."""
