"""What files mode costs against Envoy with nothing in it."""
