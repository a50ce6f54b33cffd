package seal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// MaxValue is the size of the largest value that can be sealed, in bytes.
const MaxValue = 64 << 10

// What can be wrong with a sealed value. The errors of Open say what to do.
var (
	// ErrForm is a text that Seal did not write.
	ErrForm = errors.New("this is not what `sandbox-broker seal` prints")
	// ErrUnknownKey is a value that was sealed with none of the keys.
	ErrUnknownKey = errors.New("the key is not among those that are known here")
	// ErrChanged is a value that is not as Seal wrote it.
	ErrChanged = errors.New("it was changed or cut short after it was sealed")
)

// Keyring seals with its first key and opens with all of them. The zero Keyring
// has none.
type Keyring struct {
	keys []key
}

var sealedForm = regexp.MustCompile(`^sb1:([0-9a-f]{8}):([A-Za-z0-9_-]+)$`)

// ParseKeys reads keys, separated by white space. Lines that begin with # are
// left out. Its errors name the line and do not repeat it.
func ParseKeys(text string) (*Keyring, error) {
	ring := &Keyring{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, word := range strings.Fields(line) {
			k, err := parseKey(word)
			if err != nil {
				return nil, fmt.Errorf("line %d %w", number, err)
			}
			if slices.Contains(ring.IDs(), k.id) {
				return nil, fmt.Errorf("line %d repeats the key %s", number, k.id)
			}
			ring.keys = append(ring.keys, k)
		}
	}
	if len(ring.keys) == 0 {
		return nil, errors.New("there is no key in it")
	}
	return ring, nil
}

// IDs of the keys. Whoever knows one knows nothing of its key.
func (r *Keyring) IDs() []string {
	ids := make([]string, len(r.keys))
	for i, k := range r.keys {
		ids[i] = k.id
	}
	return ids
}

// String names the keys by their ids.
func (r *Keyring) String() string { return fmt.Sprintf("keys %v", r.IDs()) }

// GoString is String, so that no way of printing shows a key.
func (r *Keyring) GoString() string { return r.String() }

// Join returns a keyring of these keys and then those of another which are not
// among them.
func (r *Keyring) Join(other *Keyring) *Keyring {
	joined := &Keyring{keys: slices.Clone(r.keys)}
	for _, k := range other.keys {
		if !slices.Contains(joined.IDs(), k.id) {
			joined.keys = append(joined.keys, k)
		}
	}
	return joined
}

// Seal encrypts a value with the first key. The result is different each time.
func (r *Keyring) Seal(value string) (string, error) {
	if len(r.keys) == 0 {
		return "", errors.New("there is no key to seal with")
	}
	if len(value) > MaxValue {
		return "", fmt.Errorf("the value is larger than %d KiB", MaxValue>>10)
	}
	first := r.keys[0]
	data := first.aead.Seal(nil, nil, []byte(value), header(first.id))
	return string(header(first.id)) + base64.RawURLEncoding.EncodeToString(data), nil
}

// Open returns the value that was sealed. Its errors do not repeat the text,
// which may be a secret that was never sealed; they are ErrForm, ErrUnknownKey
// or ErrChanged.
func (r *Keyring) Open(sealed string) (string, error) {
	id, data, err := parse(sealed)
	if err != nil {
		return "", err
	}
	i := slices.Index(r.IDs(), id)
	if i < 0 {
		return "", fmt.Errorf("it was sealed with the key %s, and %w (%s); add that key, or seal the value anew", id, ErrUnknownKey, strings.Join(r.IDs(), ", "))
	}
	value, err := r.keys[i].aead.Open(nil, nil, data, header(id))
	if err != nil {
		return "", fmt.Errorf("%w; copy it once more, or seal the value anew", ErrChanged)
	}
	return string(value), nil
}

// OpensFirst reports whether a value was sealed with the first key, so that it
// need not be sealed anew when keys are rotated.
func (r *Keyring) OpensFirst(sealed string) bool {
	id, _, err := parse(sealed)
	return err == nil && len(r.keys) > 0 && r.keys[0].id == id
}

// parse takes a sealed value apart.
func parse(sealed string) (id string, data []byte, err error) {
	m := sealedForm.FindStringSubmatch(sealed)
	if m == nil {
		return "", nil, fmt.Errorf("%w; seal the value with it", ErrForm)
	}
	if data, err = base64.RawURLEncoding.Strict().DecodeString(m[2]); err != nil {
		return "", nil, fmt.Errorf("%w; copy it once more, or seal the value anew", ErrChanged)
	}
	return m[1], data, nil
}

// header is what stands before the data and is authenticated with it.
func header(id string) []byte { return []byte("sb1:" + id + ":") }
