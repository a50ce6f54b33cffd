provider "full" {
  pool_size=4   # of all
  auth   {   # who
    # from the vault
    token  = env("TOKEN")   // never by hand
    user="me"
  }

  # the first
  rules {}
  /* the second,
     which is in use */ rules { /* behind
     the brace */
    host   = "b"

    # how much
    limit {
      rate = 1   # slow
      burst = 1 + 1
    } /* more
    of it */
    # the end of the second
  }

	# under tabs
	rules {
		host = "c"
	}
  rules { ports = [
    80, # web
    443 ] } # in one line, by the book
  # the end
}
