package snapshot

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/network"
)

// Record is what has to be known of a snapshot when this process is no more. It is written
// before the provider is asked, and again when the provider has made it. It holds no
// secrets.
type Record struct {
	ID     string `json:"id"` // snap-…
	Tenant string `json:"tenant"`
	// Name and Labels are the tenant's own.
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Instance that it is of, by the broker's ID, which may be no more.
	Instance string `json:"instance"`
	// FrontDoor names the front door that it was asked for at; empty for the broker's own API.
	FrontDoor string `json:"front_door,omitempty"`
	Provider  string `json:"provider"` // by label
	Template  string `json:"template"`
	// Contexts are the provider's IDs of the default contexts, by language.
	Contexts map[string]string `json:"contexts,omitempty"`
	// Network is the most that what goes on from it asks for: what the instance asked for while
	// it was made. nil is what the tenant has.
	Network *network.Request `json:"network,omitempty"`
	// Ephemeral says that the list of the provider is never late.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Transient means that it is a fork's, and of no use when that is over.
	Transient bool `json:"transient,omitempty"`
	// Forked means that all copies of a fork are made, and stay.
	Forked bool `json:"forked,omitempty"`
	// Keyed means that its maker finds it again by its Idempotency-Key.
	Keyed bool `json:"keyed,omitempty"`
	// Intended is when the provider was about to be asked, and Expires when it is deleted.
	Intended time.Time `json:"intended"`
	Expires  time.Time `json:"expires"`

	// Made is the provider's own ID; empty as long as it has not answered. What follows is
	// not set before.
	Made    string    `json:"made,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Bytes   int64     `json:"bytes,omitempty"`
	Memory  bool      `json:"memory,omitempty"`
	// Ending means that it is to be deleted, or what is found of it.
	Ending bool `json:"ending,omitempty"`
}

// Info describes a snapshot to its tenant.
type Info struct {
	ID, Tenant, Name   string
	Labels             map[string]string
	Instance           string
	Provider, Template string
	// FrontDoor is that of the MakeRequest.
	FrontDoor string
	CreatedAt time.Time
	ExpiresAt time.Time
	// Bytes that it takes where it is kept; 0 if that is unknown.
	Bytes int64
	// Memory says that processes were kept with the files.
	Memory bool
	// Broker is the ID of the one that has it, in lists of several brokers; else empty.
	Broker string
}

func infoOf(r Record) Info {
	return Info{
		ID: r.ID, Tenant: r.Tenant, Name: r.Name, Labels: maps.Clone(r.Labels), Instance: r.Instance, Provider: r.Provider, Template: r.Template, FrontDoor: r.FrontDoor,
		CreatedAt: r.Created, ExpiresAt: r.Expires, Bytes: r.Bytes, Memory: r.Memory,
	}
}

// IDPrefix begins the ID of every snapshot.
const IDPrefix = "snap-"

// isID reports whether a text has the form of such an ID. What has not is not looked for.
func isID(text string) bool {
	rest, ok := strings.CutPrefix(text, IDPrefix)
	return ok && len(rest) == 20 && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// idOf is the ID of the snapshot that a request with an Idempotency-Key makes of an instance,
// and a random one without a key: 100 bits, which nobody guesses.
func idOf(owner, instance, key string) string {
	if key == "" {
		return IDPrefix + strings.ToLower(rand.Text()[:20])
	}
	sum := sha256.Sum256([]byte(owner + "\x00" + instance + "\x00" + key))
	return IDPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:20])
}

// forkID is the ID of the snapshot behind a fork. Each attempt has another one; with a key
// they all begin with its mark.
func forkID(owner, instance, key string) string {
	if key == "" {
		return idOf("", "", "")
	}
	return forkMark(owner, instance, key) + strings.ToLower(rand.Text()[:10])
}

// forkMark stands for the key of a fork.
func forkMark(owner, instance, key string) string {
	return idOf(owner, instance, "fork\x00"+key)[:len(IDPrefix)+10]
}
