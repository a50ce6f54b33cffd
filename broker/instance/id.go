package instance

import (
	"crypto/rand"
	"regexp"
	"strings"
)

// ID names an instance: {tenant}:{session}:{instance}.
type ID struct {
	Tenant string
	// Session is the tenant's own name for a piece of work.
	Session string
	// Instance is opaque and of fixed length, so that no ID is a prefix of
	// another: runsc and Docker resolve IDs by unique prefix.
	Instance string
}

// String returns the ID as it appears in the API and in logs.
func (id ID) String() string { return id.Tenant + ":" + id.Session + ":" + id.Instance }

var (
	tenantName   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	sessionName  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	instancePart = regexp.MustCompile(`^[a-z0-9]{20}$`)
)

// ParseID reads an ID and reports whether it has the right form.
func ParseID(s string) (ID, bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return ID{}, false
	}
	id := ID{Tenant: parts[0], Session: parts[1], Instance: parts[2]}
	ok := tenantName.MatchString(id.Tenant) && sessionName.MatchString(id.Session) && instancePart.MatchString(id.Instance)
	if !ok {
		return ID{}, false
	}
	return id, true
}

// randomName returns 20 characters of [a-z2-7]: 100 bits, which nobody guesses.
func randomName() string {
	return strings.ToLower(rand.Text()[:20])
}
