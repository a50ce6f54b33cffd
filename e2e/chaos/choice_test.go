package chaos_test

import (
	"fmt"
	"strings"
	"time"
)

// choose adds to a request for an instance, or for an execution wherever it fits, what
// it says of sessions and providers where there are several. Then clients of a tenant
// share sessions, and so they come for one at the same time.
func (c *client) choose(e *event, body map[string]any) {
	labels := c.world.labels()
	if len(labels) == 1 {
		return
	}
	label := labels[c.random.IntN(len(labels))]
	switch n := c.random.IntN(100); {
	case n < 45:
		e.Session = fmt.Sprintf("s-%d", c.random.IntN(4))
	case n < 55: // as often with a provider as without
		e.Session = fmt.Sprintf("%s%d", several, c.random.IntN(2))
		if c.random.IntN(2) == 0 {
			e.Named = label
		}
	case n < 65:
		if e.Named = label; e.Session != "" {
			e.Session = several + e.Session
		}
	}
	if e.Session != "" {
		body["session_id"] = e.Session
	}
	if e.Named != "" {
		body["provider"] = e.Named
	}
}

// patience is how long the client waits for an instance, where there are several
// providers: one in five goes away before it has one, and comes back if it can.
func (c *client) patience() time.Duration {
	if len(c.world.labels()) == 1 || c.random.IntN(5) > 0 {
		return 0
	}
	return time.Duration(1+c.random.IntN(250)) * time.Millisecond
}

// several begins the names of sessions for which clients name a provider: they may have
// an instance on each.
const several = "n-"

// owner is whose an instance in a cloud is, where only one may live at a time.
func owner(tenant, session, label string) string {
	if strings.HasPrefix(session, several) {
		return tenant + ":" + session + " at " + label
	}
	return tenant + ":" + session
}
