package preview_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
)

func TestALabelSaysWhatItIsFor(t *testing.T) {
	s := signer(t, key)
	for _, port := range []uint16{1, 8000, 65535} {
		g := grant()
		g.Port = port
		label := s.Label(g)
		assert.Assert(t, len(label) <= 63 && regexp.MustCompile(`^[0-9]+-[a-z2-7]+$`).MatchString(label), label)
		for _, text := range []string{label, strings.ToUpper(label)} {
			l, err := preview.ReadLabel(text, now)
			assert.NilError(t, err)
			assert.Equal(t, l.Port, port)
			assert.Assert(t, l.Expires.Equal(g.Expires))
			assert.Assert(t, s.VerifyLabel(l, g.Tenant, g.InstanceID))
			assert.Assert(t, !s.VerifyLabel(l, "evil", g.InstanceID))
			assert.Assert(t, !s.VerifyLabel(l, g.Tenant, "acme:s:y"))
			assert.Assert(t, !signer(t, bytes.Repeat([]byte("o"), preview.KeySize)).VerifyLabel(l, g.Tenant, g.InstanceID))
		}
	}
}

func TestWhatIsNoLabel(t *testing.T) {
	s := signer(t, key)
	g := grant()
	label := s.Label(g)
	verifies := func(text string, now time.Time) bool {
		l, err := preview.ReadLabel(text, now)
		if err != nil {
			assert.ErrorIs(t, err, preview.ErrInvalid)
			return false
		}
		return s.VerifyLabel(l, g.Tenant, g.InstanceID)
	}
	assert.Assert(t, verifies(label, now))
	port, token, _ := strings.Cut(label, "-")
	for name, text := range map[string]string{
		"nothing": "", "a word": "www", "a port alone": port, "a token alone": token, "no port": "-" + token, "another port": "8001-" + token,
		"port 0": "0-" + token, "a port with a zero": "0" + label, "a large port": "70000-" + token, "a sign": "+" + label,
		"cut": label[:len(label)-1], "longer": label + "a", "with a later end": port + "-z" + token[1:], "with padding": label + "=",
		"with another last bit": label[:len(label)-1] + string(label[len(label)-1]^1), "in other characters": strings.Replace(label, token[:1], "1", 1),
	} {
		assert.Check(t, !verifies(text, now), name)
	}
	for i := range token { // each character counts
		changed := []byte(token)
		if changed[i]++; changed[i] == 'z'+1 || changed[i] == '8' {
			changed[i] = 'a'
		}
		assert.Check(t, !verifies(port+"-"+string(changed), now), "%d", i)
	}
	assert.Check(t, !verifies(label, g.Expires))
	assert.Check(t, verifies(label, g.Expires.Add(-time.Second)))
}
