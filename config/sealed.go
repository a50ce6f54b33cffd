package config

import (
	"errors"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// KeysVariable is the environment variable with keys for sealed values, separated
// by white space. Those of key_file come first.
const KeysVariable = "SANDBOX_BROKER_KEYS"

// LoadKeys reads the keys for sealed values that a configuration has, and nothing
// else of it: the rest may be wrong. A configuration without keys is an error.
func LoadKeys(path string, options ...Option) (*seal.Keyring, Diagnostics) {
	p, err := newParser(path, options)
	if err != nil {
		return nil, unreadable(path, err)
	}
	body := p.readAll()
	if body == nil {
		p.diags.sort()
		return nil, p.diags
	}
	p.keys.attr = body.Attributes[keyFileSetting]
	ring, err := p.keyring()
	if errors.Is(err, errNoKeys) {
		p.fail(hcl.Range{}, "No key", capitalize(err.Error())+".")
	}
	p.diags.sort()
	return ring, p.diags
}

// Keyring has the keys for sealed values; it has none if the configuration has
// none.
func (c *Config) Keyring() *seal.Keyring {
	if c.keys == nil {
		return &seal.Keyring{}
	}
	return c.keys
}

const keyFileSetting = "key_file"

// keySource is where the keys of a configuration come from. They are read when
// the first sealed value is met.
type keySource struct {
	attr    *hclsyntax.Attribute // key_file; nil if it is not given
	loading bool
	loaded  bool
	ring    *seal.Keyring
	err     error
}

var errNoKeys = fmt.Errorf("there is no key here. `sandbox-broker keygen FILE` makes one: name its file with %s = \"FILE\", or set %s", keyFileSetting, KeysVariable)

// keyring returns the keys. What is wrong with them is reported where they come
// from, and the error says so to each sealed value.
func (p *parser) keyring() (*seal.Keyring, error) {
	switch {
	case p.keys.loading:
		return nil, fmt.Errorf("%s cannot be sealed itself", keyFileSetting)
	case p.keys.loaded:
		return p.keys.ring, p.keys.err
	}
	p.keys.loading = true
	p.keys.ring, p.keys.err = p.readKeys()
	p.keys.loading, p.keys.loaded = false, true
	return p.keys.ring, p.keys.err
}

func (p *parser) readKeys() (*seal.Keyring, error) {
	ring := &seal.Keyring{}
	if p.keys.attr != nil {
		fromFile, ok := p.readKeyFile(p.keys.attr)
		if !ok {
			return nil, fmt.Errorf("the keys cannot be read: see %s", keyFileSetting)
		}
		ring = ring.Join(fromFile)
	}
	if text, set := p.around.lookupEnv(KeysVariable); set && text != "" {
		fromEnv, err := seal.ParseKeys(text)
		if err != nil {
			p.fail(hcl.Range{}, "No usable keys", fmt.Sprintf("The environment variable %s is wrong: %s.", KeysVariable, err))
			return nil, fmt.Errorf("the keys cannot be read: see %s", KeysVariable)
		}
		ring = ring.Join(fromEnv)
	}
	if len(ring.IDs()) == 0 {
		return nil, errNoKeys
	}
	return ring, nil
}

// readKeyFile reads the file that key_file names; one that is null names none.
func (p *parser) readKeyFile(attr *hclsyntax.Attribute) (ring *seal.Keyring, ok bool) {
	d := p.documents[attr.NameRange.Filename]
	before := p.failures
	a := p.evaluateAttribute(attr, d.eval)
	field, _ := rootSchema().Field(keyFileSetting)
	path, given := p.resolve(sdk.Schema{field}, []attribute{a}, attr.NameRange)[keyFileSetting].(string)
	if !given {
		return &seal.Keyring{}, p.failures == before
	}
	path = absolute(d.dir(), path)
	text, err := p.reading.readBy(seal.ReadKeyFile, path, path, FileKeys)
	if err == nil {
		ring, err = seal.ParseKeys(string(text))
	}
	if err != nil {
		p.fail(attr.Expr.Range(), "No usable key file", capitalize(err.Error())+".")
		return nil, false
	}
	return ring, true
}
