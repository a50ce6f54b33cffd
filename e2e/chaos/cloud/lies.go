package cloud

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// Lie is how a call goes wrong.
type Lie string

// The lies. What is called after has had its effect.
const (
	HangBefore  Lie = "hang before"
	HangAfter   Lie = "hang after"
	FailBefore  Lie = "fail before"
	FailAfter   Lie = "fail after"
	ResetBefore Lie = "reset before"
	ResetAfter  Lie = "reset after"
	Full        Lie = "full" // of creations only: there is no room
	// KillBefore and KillAfter kill the process of the client.
	KillBefore Lie = "kill before"
	KillAfter  Lie = "kill after"
)

// Lies say how a cloud lies. The zero value is honest.
type Lies struct {
	// Share of the calls that go wrong, and how: one of these, each as often.
	Share float64
	Kinds []Lie
	// ListLate is how long the list lacks what was made, DeleteLate how long it
	// still has what was destroyed; each call draws a time up to that.
	ListLate, DeleteLate time.Duration
	// NoKeys says that creations with the same key make another instance.
	NoKeys bool
	// Creations says that other calls go well.
	Creations bool
	// Slow is how long a creation has had its effect before it is answered, and how
	// long a destruction takes before it has; each draws a time up to that.
	Slow time.Duration
}

// hangBound ends a call that hangs although its client waits for ever.
const hangBound = time.Minute

// SetLies changes the lies for calls that come from now on.
func (c *Cloud) SetLies(l Lies) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lies = l
}

// LieOnce has the next call at a path lie: "create", "execute", "destroy", "list".
func (c *Cloud) LieOnce(path string, l Lie) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.once[path] = l
}

// Told says how often the cloud has lied how.
func (c *Cloud) Told() map[Lie]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := map[Lie]int{}
	for lie, n := range c.told {
		told[lie] = n
	}
	return told
}

// lie draws what a call does.
func (c *Cloud) lie(path string) (l Lie) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		switch {
		case path == "create":
		case l == Full:
			l = FailBefore
		// Other calls have so much time that a test would do nothing but wait.
		case l == HangBefore:
			l = ResetBefore
		case l == HangAfter:
			l = ResetAfter
		}
		if l != "" {
			c.told[l]++
		}
	}()
	if l, found := c.once[path]; found {
		delete(c.once, path)
		return l
	}
	if len(c.lies.Kinds) == 0 || c.lies.Creations && path != "create" || c.random.Float64() >= c.lies.Share {
		return ""
	}
	return c.lies.Kinds[c.random.IntN(len(c.lies.Kinds))]
}

// dally waits as long as the cloud is slow.
func (c *Cloud) dally(r *http.Request) {
	c.mu.Lock()
	slow, stop := upTo(c.random, c.lies.Slow), c.closing
	c.mu.Unlock()
	if slow == 0 {
		return
	}
	timer := time.NewTimer(slow)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-stop:
	}
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(random.Int64N(int64(d)))
}

// goWrong ends a call as the lie says.
func (c *Cloud) goWrong(w http.ResponseWriter, r *http.Request, l Lie) {
	switch l {
	case HangBefore, HangAfter:
		c.mu.Lock()
		stop := c.closing
		c.mu.Unlock()
		select {
		case <-r.Context().Done():
		case <-stop:
		case <-time.After(hangBound):
		}
		panic(http.ErrAbortHandler)
	case ResetBefore, ResetAfter:
		panic(http.ErrAbortHandler)
	case KillBefore, KillAfter:
		c.kill(r.Header.Get(ProcessHeader))
		panic(http.ErrAbortHandler)
	case FailBefore, FailAfter:
		http.Error(w, "the cloud has trouble", http.StatusInternalServerError)
	case Full:
		http.Error(w, "the account is full", http.StatusTooManyRequests)
	default:
		panic(fmt.Sprintf("no lie %q", l))
	}
}
