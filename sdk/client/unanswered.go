package client

// Unanswered is the error of a request that got no whole answer of a broker: nobody
// answered, or something else did, or the answer broke off. Whether the broker has done
// what was asked for is unknown then.
type Unanswered struct {
	what  string
	cause error
}

func unanswered(what string, cause error) error { return &Unanswered{what: what, cause: cause} }

// Error implements error.
func (u *Unanswered) Error() string {
	if u.cause == nil {
		return u.what
	}
	return u.what + ": " + u.cause.Error()
}

// Unwrap returns what stood in the way.
func (u *Unanswered) Unwrap() error { return u.cause }
