package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Hash is the SHA-256 sum that chains a line to the next.
type Hash [sha256.Size]byte

// String is the sum in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads 64 hexadecimal digits.
func ParseHash(text string) (h Hash, err error) {
	if len(text) != hex.EncodedLen(len(h)) {
		return h, errors.New("a hash has 64 hexadecimal digits")
	}
	_, err = hex.Decode(h[:], []byte(text))
	return h, err
}

// Event is what kind of line it is.
type Event string

// The events.
const (
	EventBegin Event = "begin" // an effect is about to happen
	EventEnd   Event = "end"   // what became of it
	EventFile  Event = "file"  // a file begins
	EventNote  Event = "note"  // something about the log itself
)

// Effect is something that changes a sandbox, or the broker. It never holds the
// value of an argument or of a variable.
type Effect struct {
	Operation string `json:"operation"`
	// Covers are the operations that this one effect stands for, in their order; none
	// where it is Operation alone.
	Covers []string `json:"covers,omitempty"`
	// Cause is why it happens: "request", or what in the broker asked for it.
	Cause    string `json:"cause,omitempty"`
	Tenant   string `json:"tenant_id,omitempty"`
	Session  string `json:"session_id,omitempty"`
	Provider string `json:"provider,omitempty"`
	// Instance is the broker's name for it, ProviderInstance the provider's.
	Instance         string `json:"instance_id,omitempty"`
	ProviderInstance string `json:"provider_instance,omitempty"`
	RequestID        string `json:"request_id,omitempty"`
	// Remote is the address that the request came from.
	Remote string `json:"remote,omitempty"`
	// FrontDoor names the front door whose request it is; empty for the broker's own API.
	FrontDoor   string `json:"front_door,omitempty"`
	ExecutionID string `json:"execution_id,omitempty"`
	ContextID   string `json:"context_id,omitempty"`
	CommandID   string `json:"command_id,omitempty"`
	// SnapshotID is the broker's name for a snapshot, ProviderSnapshot the provider's.
	SnapshotID       string   `json:"snapshot_id,omitempty"`
	ProviderSnapshot string   `json:"provider_snapshot,omitempty"`
	Template         string   `json:"template,omitempty"`
	Language         string   `json:"language,omitempty"`
	CodeHash         string   `json:"code_hash,omitempty"` // "sha256:" and 64 hexadecimal digits
	CodeBytes        int64    `json:"code_bytes,omitempty"`
	Program          string   `json:"program,omitempty"`
	Path             string   `json:"path,omitempty"`
	To               string   `json:"to,omitempty"`
	Paths            []string `json:"paths,omitempty"`
	Signal           string   `json:"signal,omitempty"`
	Port             int      `json:"port,omitempty"`
	// Host, Protocol and Method are those of a connection out of an instance, and Hosts those
	// that one may reach.
	Host     string   `json:"host,omitempty"`
	Protocol string   `json:"protocol,omitempty"`
	Method   string   `json:"method,omitempty"`
	Hosts    []string `json:"hosts,omitempty"`
	EnvNames []string `json:"env_names,omitempty"`
	Packages []string `json:"packages,omitempty"`
	// Change says what an administrator changes, without secrets.
	Change string `json:"change,omitempty"`
	// Usage is what a tenant has used of its quotas with what is reserved for the effect,
	// in the words of package quota. Only the first line has it.
	Usage json.RawMessage `json:"usage,omitempty"`
	// Code is left out of the log unless it is to be included.
	Code string `json:"code,omitempty"`
}

// The values of Outcome.Status beside those of sdk.Status.
const (
	StatusError    = "error"     // it was refused or failed; Error says how
	StatusUnknown  = "unknown"   // the broker ended meanwhile
	StatusNotBegun = "not_begun" // the line came too late, and nothing was done
)

// Outcome is what became of an effect.
type Outcome struct {
	Status string   `json:"status"`
	Error  sdk.Code `json:"error,omitempty"`
	// Detail is the broker's own word, never the provider's.
	Detail       string  `json:"detail,omitempty"`
	DurationMS   float64 `json:"duration_ms"`
	ExitCode     *int    `json:"exit_code,omitempty"`
	MemoryUsedMB float64 `json:"memory_used_mb,omitempty"`
	// Made is what the provider calls what it has made.
	Made   string `json:"made,omitempty"`
	Region string `json:"region,omitempty"`
	// Bytes that were written, and their SHA-256 sum as in Effect.CodeHash.
	Bytes *int64 `json:"bytes,omitempty"`
	Hash  string `json:"content_hash,omitempty"`
	// Verdict on a connection out of an instance, why, when it began, and how much went
	// each way.
	Verdict  string `json:"verdict,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Began    string `json:"began,omitempty"`
	Sent     *int64 `json:"sent_bytes,omitempty"`
	Received *int64 `json:"received_bytes,omitempty"`
	// Lost is how many of them are not in the log.
	Lost int64 `json:"lost,omitempty"`
}

// note is what the log says about itself.
type note struct {
	Note string `json:"note,omitempty"`
	// Open are the effects that had begun and not ended when a file began.
	Open []string `json:"open,omitempty"`
	// File is the one that the note is about, with its size and sum where those
	// matter, and LastHash the hash of its last line.
	File     string `json:"file,omitempty"`
	Size     int64  `json:"size,omitempty"`
	SHA256   string `json:"sha256,omitempty"`
	LastHash string `json:"last_hash,omitempty"`
	// Broker says whose log it is, and Heads are the ends of the logs of all brokers.
	Broker string `json:"broker,omitempty"`
	Heads  []Head `json:"heads,omitempty"`
}

// content is a line without its place in the chain.
type content struct {
	Timestamp string `json:"timestamp"`
	Event     Event  `json:"event"`
	EffectID  string `json:"effect_id,omitempty"`
	*Effect
	*Outcome
	*note
}

// encode gives a JSON object on one line: control characters in what tenants wrote
// are escaped, so that none can begin a line of its own.
func (c content) encode(at time.Time) ([]byte, error) {
	c.Timestamp = at.UTC().Format("2006-01-02T15:04:05.000000Z")
	return json.Marshal(c)
}

const (
	hashKey  = `,"hash":"`
	seqKey   = `{"seq":`
	prevKey  = `,"prev":"`
	hexHash  = 2 * sha256.Size
	trailing = len(hashKey) + hexHash + len(`"}`)
)

// seal appends a line: the content with its number, the hash of the line before,
// and the hash of everything up to there.
func seal(dst []byte, seq uint64, prev Hash, content []byte) ([]byte, Hash) {
	start := len(dst)
	dst = append(dst, seqKey...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, prevKey...)
	dst = hex.AppendEncode(dst, prev[:])
	dst = append(dst, '"', ',')
	dst = append(dst, content[1:len(content)-1]...)
	sum := Hash(sha256.Sum256(dst[start:]))
	dst = append(dst, hashKey...)
	dst = hex.AppendEncode(dst, sum[:])
	return append(dst, '"', '}', '\n'), sum
}

// Line is one line of the log as far as the chain is concerned.
type Line struct {
	Seq        uint64
	Prev, Hash Hash
	Event      Event
	EffectID   string
	Note       string
	LastHash   string
	Open       []string
	// Broker whose log it is, and Heads of those of all; none in most lines.
	Broker string
	Heads  []Head
}

// ErrAltered is a line whose content does not match its hash.
var ErrAltered = errors.New("the line does not match its hash")

// ParseLine reads a line, without the newline at its end. Of several that mean the
// same JSON it takes only the one that seal writes.
func ParseLine(text []byte) (Line, error) {
	var l Line
	if len(text) < trailing || !bytes.HasSuffix(text, []byte(`"}`)) || !bytes.HasPrefix(text[len(text)-trailing:], []byte(hashKey)) {
		return l, errors.New("the line has no hash at its end")
	}
	sealed := text[:len(text)-trailing]
	var err error
	if l.Hash, err = ParseHash(string(text[len(text)-trailing+len(hashKey) : len(text)-2])); err != nil {
		return l, fmt.Errorf("the hash of the line: %w", err)
	}
	rest, ok := bytes.CutPrefix(sealed, []byte(seqKey))
	if !ok {
		return l, errors.New("the line does not begin with its number")
	}
	number, rest, ok := bytes.Cut(rest, []byte(prevKey))
	if !ok || len(rest) < hexHash+2 || rest[hexHash] != '"' || rest[hexHash+1] != ',' {
		return l, errors.New("the line does not name the one before it")
	}
	if l.Seq, err = strconv.ParseUint(string(number), 10, 64); err != nil || l.Seq == 0 || strconv.FormatUint(l.Seq, 10) != string(number) {
		return l, errors.New("the number of the line is none")
	}
	if l.Prev, err = ParseHash(string(rest[:hexHash])); err != nil {
		return l, fmt.Errorf("the hash of the line before: %w", err)
	}
	if Hash(sha256.Sum256(sealed)) != l.Hash {
		return l, ErrAltered
	}
	var c struct {
		Event    Event    `json:"event"`
		EffectID string   `json:"effect_id"`
		Note     string   `json:"note"`
		LastHash string   `json:"last_hash"`
		Open     []string `json:"open"`
		Broker   string   `json:"broker"`
		Heads    []Head   `json:"heads"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return l, fmt.Errorf("the line is not JSON: %w", err)
	}
	l.Broker, l.Heads = c.Broker, c.Heads
	l.Event, l.EffectID, l.Note, l.LastHash, l.Open = c.Event, c.EffectID, c.Note, c.LastHash, c.Open
	return l, nil
}
