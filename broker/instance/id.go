package instance

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"
)

// ID names an instance: {tenant}:{session}:{instance}. No part holds a colon.
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

var sessionName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// sessionOfKey names the session of a creation by the key that its caller gave it.
func sessionOfKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "k-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:26])
}

// randomName returns 20 characters of [a-z2-7]: 100 bits, which nobody guesses.
func randomName() string {
	return strings.ToLower(rand.Text()[:20])
}
