package api

import (
	"github.com/gofiber/fiber/v2"
)

// secretive is an answer that holds a secret: it is shown once, and never kept for an
// Idempotency-Key as it is.
type secretive interface {
	// withheld returns what is answered to who asks again with the key. keep says that
	// there is such an answer: without, the request is carried out again, which must
	// do no more than give another secret.
	withheld() (again any, keep bool)
}

// shownOnce stands in the message of an answer that is given again.
const shownOnce = ". The token was shown in the first answer to this Idempotency-Key and cannot be shown again: if it was lost, rotate it."

func (a AdminNewToken) withheld() (any, bool) {
	a.Token = ""
	a.Message += shownOnce
	return a, true
}

// withheld makes another link in place of the same: nobody needs to know of the first.
func (p Preview) withheld() (any, bool) { return nil, false }

// withhold notes what is to be kept of an answer with a secret in its place.
func withhold(c *fiber.Ctx, answer any) error {
	secret, ok := answer.(secretive)
	if !ok {
		return nil
	}
	x := exchangeOf(c)
	x.secret = true
	again, keep := secret.withheld()
	if !keep {
		return nil
	}
	var err error
	x.again, err = encode(again)
	return err
}
