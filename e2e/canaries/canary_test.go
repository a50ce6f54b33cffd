package canaries_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// canary is a secret that is found again.
type canary struct {
	name string
	text string
	// core is the part of text that is searched for: random, and longer than what
	// may be shown of a secret, its last four characters.
	core  string
	forms []string
}

// cage has all canaries.
type cage struct{ all []*canary }

// plain makes a canary that can be a token: letters and digits only.
func (c *cage) plain(name string) string { return c.add(name, "%s0end") }

// wild makes one whose characters other encodings write in other ways.
func (c *cage) wild(name string) string { return c.add(name, "p/w+&%%=<ö %s ~end") }

func (c *cage) add(name, format string) string {
	core := rand.Text()[:14]
	k := &canary{name: name, core: core, text: fmt.Sprintf(format, core)}
	c.all = append(c.all, k.known())
	return k.text
}

// adopt takes care of a secret that somebody else made.
func (c *cage) adopt(name, text, core string) {
	k := &canary{name: name, core: core, text: text}
	c.all = append(c.all, k.known())
}

// known finds the forms of the core: as it is, in hexadecimal, and in base64, which
// depends on what stands before it.
func (k *canary) known() *canary {
	k.forms = []string{k.core, hex.EncodeToString([]byte(k.core)), strings.ToUpper(hex.EncodeToString([]byte(k.core)))}
	for before := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("\x00", before) + k.core))
		whole := (before + len(k.core)) * 8 / 6 // characters that depend on nothing after it
		k.forms = append(k.forms, encoded[(before*8+5)/6:whole])
	}
	return k
}

// in says where in a text the canary is, or "".
func (k *canary) in(text string) string {
	for _, form := range k.forms {
		if i := strings.Index(text, form); i >= 0 {
			return text[max(0, i-200):min(len(text), i+len(form)+100)]
		}
	}
	return ""
}

// said collects what comes out of a broker, by where it did.
type said map[string]string

func (s said) add(where, text string) { s[where] += text + "\n" }

// check fails the test for every canary that has come out.
func (c *cage) check(t *testing.T, s said) {
	t.Helper()
	for where, text := range s {
		for _, k := range c.all {
			if place := k.in(text); place != "" {
				t.Errorf("%s came out in %s: … %s …", k.name, where, place)
			}
		}
	}
}

func TestACanaryIsFoundInEveryForm(t *testing.T) {
	var c cage
	for range 20 {
		text := c.wild("a canary")
		k := c.all[len(c.all)-1]
		for form, out := range map[string]string{
			"as it is": text, "hexadecimal": fmt.Sprintf("%x", "u:"+text), "capitals": fmt.Sprintf("%X", text),
			"base64": base64.StdEncoding.EncodeToString([]byte(text)), "base64 of URLs": base64.RawURLEncoding.EncodeToString([]byte(text)),
			"base64 with a name": base64.StdEncoding.EncodeToString([]byte("u:" + text)), "base64 with another": base64.StdEncoding.EncodeToString([]byte("us:" + text)),
			"a query": url.QueryEscape(text), "a path": url.PathEscape(text), "quoted": fmt.Sprintf("%q", text), "quoted in ASCII": fmt.Sprintf("%+q", text),
		} {
			assert.Check(t, k.in("before "+out+" after") != "", "%s: %s", form, out)
		}
		assert.Check(t, is.Equal(k.in("****"+text[len(text)-4:]), ""))
	}
}
