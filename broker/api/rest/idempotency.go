package rest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	headerIdempotencyKey = "Idempotency-Key"
	// headerReplayed marks an answer that was given before.
	headerReplayed = "Idempotency-Replayed"
)

// Answers keep what requests with an Idempotency-Key were answered;
// *idempotency.Answers does.
type Answers interface {
	Begin(ctx context.Context, id idempotency.ID, f idempotency.Fingerprint) (idempotency.State, idempotency.Answer, error)
	End(ctx context.Context, id idempotency.ID, answer *idempotency.Answer) error
	Abandon(id idempotency.ID)
}

var keyForm = regexp.MustCompile(`^[!-~]{1,255}$`)

// takesKey reports whether requests of the operation may have a key. Those that are
// passed on to a program in a sandbox leave it to the program.
func (op Operation) takesKey() bool {
	return op.Method == http.MethodPost && !op.Public && !op.AnyQuery
}

// keyOf returns the request's key, empty for none.
func (s *Server) keyOf(c *fiber.Ctx, op Operation) (string, error) {
	keys := c.Request().Header.PeekAll(headerIdempotencyKey)
	if len(keys) == 0 || !op.takesKey() {
		return "", nil
	}
	key := string(keys[0])
	switch {
	case len(keys) > 1 || !keyForm.MatchString(key):
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, headerIdempotencyKey, "must be given once, as 1 to 255 visible characters of ASCII")
	case op.streams || len(op.Events) > 0 && wantsEvents(c):
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, headerIdempotencyKey, "does not go with an answer that streams, which is not kept")
	case s.opts.Answers == nil:
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, headerIdempotencyKey, "is of no use, since this broker keeps no answers")
	}
	return key, nil
}

// once carries a request out unless one with its key was already: that one's answer is
// given then. The request goes on when its client goes away, since the client may ask
// again.
func (s *Server) once(c *fiber.Ctx, op Operation, id idempotency.ID, fingerprint idempotency.Fingerprint, handle func() error) error {
	x := s.exchangeOf(c)
	begin, cancelBegin := context.WithTimeout(s.base, s.diskTimeout())
	defer cancelBegin()
	state, answer, err := s.opts.Answers.Begin(begin, id, fingerprint)
	switch {
	case err != nil:
		return err
	case state == idempotency.Answered:
		return replay(c, answer)
	case state == idempotency.Running:
		e := sdk.Errorf(sdk.CodeConflict, "a request with this Idempotency-Key is being carried out; ask again for its answer")
		e.RetryAfter = time.Second
		return e
	case state == idempotency.Reused:
		return errKeyReused
	case state == idempotency.Interrupted && !op.Resumes:
		s.opts.Answers.Abandon(id)
		return sdk.Errorf(sdk.CodeUnavailable, "the request with this Idempotency-Key was cut off, by a restart of the broker for example; whether it had effects is unknown. Look, and use another key to do it again")
	}
	failpoint.Hit(failpoint.KeyBegun)
	x.keyed = true
	ended := false
	defer func() {
		if !ended { // by a panic
			s.opts.Answers.Abandon(id)
		}
	}()
	err = handle()
	kept := worthKeeping(c, x, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.base), s.diskTimeout())
	defer cancel()
	ended = true
	failpoint.Hit(failpoint.KeyAnswer)
	defer failpoint.Hit(failpoint.KeyKept)
	if keepErr := s.opts.Answers.End(ctx, id, kept); keepErr != nil {
		// It has happened, so it is answered.
		s.opts.Logger.Warn("an answer could not be kept for its Idempotency-Key", "request_id", x.requestID, "error", keepErr)
	}
	return err
}

// worthKeeping returns what is to be answered again, nil for nothing: a refusal of
// something that was not begun may come to another end the next time.
func worthKeeping(c *fiber.Ctx, x *exchange, err error) *idempotency.Answer {
	if err != nil {
		p, body := x.problem(err)
		if !p.Begun {
			return nil
		}
		return &idempotency.Answer{Status: p.Status, ContentType: p.MediaType, Body: body}
	}
	if x.secret && x.again == nil {
		return nil
	}
	answer := &idempotency.Answer{
		Status:      c.Response().StatusCode(),
		ContentType: string(c.Response().Header.ContentType()),
		Body:        append([]byte(nil), c.Response().Body()...),
	}
	if x.secret {
		answer.Body = x.again
	}
	answer.Headers = maps.Clone(x.headers)
	if x.etag != "" {
		if answer.Headers == nil {
			answer.Headers = map[string]string{}
		}
		answer.Headers[fiber.HeaderETag] = x.etag
	}
	return answer
}

// replay gives an answer again.
func replay(c *fiber.Ctx, answer idempotency.Answer) error {
	if answer.Dropped {
		return sdk.Errorf(sdk.CodeInvalidRequest, "the request with this Idempotency-Key was carried out and answered with %d; its answer was too large to be kept (above %d bytes)", answer.Status, idempotency.MaxBody)
	}
	c.Status(answer.Status)
	c.Set(headerReplayed, "true")
	if answer.ContentType != "" {
		c.Set(fiber.HeaderContentType, answer.ContentType)
	}
	for name, value := range answer.Headers {
		c.Set(name, value)
	}
	c.Response().SetBodyRaw(answer.Body)
	return nil
}

// fingerprintOf stands for all of a request that matters. Of the body nothing else is
// kept. Where a front door is mounted does not matter: that may have changed when the
// client asks again.
func fingerprintOf(c *fiber.Ctx, route string) (f idempotency.Fingerprint) {
	parts := [][]byte{[]byte(c.Method()), []byte(route)}
	parameters := c.AllParams()
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		parts = append(parts, []byte(name), []byte(parameters[name]))
	}
	parts = append(parts, c.Request().URI().QueryString(), c.Request().Header.ContentType(), c.Request().Header.ContentEncoding(),
		c.Request().Header.Peek(fiber.HeaderIfMatch), c.BodyRaw())
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	h.Sum(f[:0])
	return f
}

// errKeyReused has a status of its own: it is a mistake of the client's, while other
// conflicts pass.
var errKeyReused = &Error{
	Code: sdk.CodeConflict, Status: http.StatusUnprocessableEntity,
	Fields: []FieldError{{Field: headerIdempotencyKey, Detail: "was used for another request; use a key of its own for each"}},
}
