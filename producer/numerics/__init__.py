"""Array types, MT19937 and polar normals, NMSE and its split, bootstraps."""
