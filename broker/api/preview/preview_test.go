package preview_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
)

var (
	key = bytes.Repeat([]byte("k"), preview.KeySize)
	now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func grant() preview.Grant {
	return preview.Grant{Tenant: "acme", InstanceID: "acme:s:x", Port: 8000, Expires: now.Add(time.Minute)}
}

func signer(t testing.TB, key []byte) *preview.Signer {
	t.Helper()
	s, err := preview.NewSigner(key)
	assert.NilError(t, err)
	return s
}

func TestATokenSaysWhatItIsFor(t *testing.T) {
	token, err := signer(t, key).Sign(grant())
	assert.NilError(t, err)
	got, err := signer(t, key).Verify(token, now)
	assert.NilError(t, err)
	assert.DeepEqual(t, got, grant())
}

func TestWhatIsNoToken(t *testing.T) {
	token, err := signer(t, key).Sign(grant())
	assert.NilError(t, err)
	other, err := signer(t, bytes.Repeat([]byte("o"), preview.KeySize)).Sign(grant())
	assert.NilError(t, err)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	assert.NilError(t, err)
	changed := func(from, to string) string {
		assert.Assert(t, bytes.Contains(raw, []byte(from)))
		return base64.RawURLEncoding.EncodeToString(bytes.Replace(raw, []byte(from), []byte(to), 1))
	}
	for name, test := range map[string]struct {
		token string
		now   time.Time
	}{
		"one that has expired":             {token, now.Add(time.Minute)},
		"one that expired long ago":        {token, now.Add(1000 * time.Hour)},
		"nothing":                          {"", now},
		"something else":                   {"latest", now},
		"one of another key":               {other, now},
		"one for another tenant":           {changed(`"acme"`, `"evil"`), now},
		"one for another instance":         {changed("acme:s:x", "acme:s:y"), now},
		"one for another port":             {changed("8000", "8001"), now},
		"one with a later end":             {changed("2026", "2027"), now},
		"the signature alone":              {base64.RawURLEncoding.EncodeToString(raw[:32]), now},
		"the contents alone":               {base64.RawURLEncoding.EncodeToString(raw[32:]), now},
		"a signature of zeros":             {base64.RawURLEncoding.EncodeToString(append(make([]byte, 32), raw[32:]...)), now},
		"one that was cut":                 {token[:len(token)-4], now},
		"one with something behind":        {token + "AAAA", now},
		"one with a line feed in it":       {token[:8] + "\n" + token[8:], now},
		"one longer than any":              {token + strings.Repeat("A", preview.MaxToken), now},
		"one in the standard's characters": {base64.StdEncoding.EncodeToString(raw) + "+", now},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := signer(t, key).Verify(test.token, test.now)
			assert.ErrorIs(t, err, preview.ErrInvalid)
		})
	}
}

func FuzzVerify(f *testing.F) {
	s := signer(f, key)
	token, err := s.Sign(grant())
	assert.NilError(f, err)
	f.Add(token)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := s.Verify(text, now); err == nil {
			assert.Equal(t, text, token)
		}
	})
}

func TestTheKeyIsMadeOnceAndPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	first, err := preview.LoadKey(path)
	assert.NilError(t, err)
	assert.Equal(t, len(first), preview.KeySize)
	again, err := preview.LoadKey(path)
	assert.NilError(t, err)
	assert.DeepEqual(t, first, again)
	info, err := os.Stat(path)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))

	assert.NilError(t, os.WriteFile(path, []byte("half"), 0o600))
	_, err = preview.LoadKey(path)
	assert.ErrorContains(t, err, "does not hold a key")
	assert.Assert(t, !strings.Contains(err.Error(), "half"))
	_, err = preview.NewSigner([]byte("short"))
	assert.ErrorContains(t, err, "5 bytes")
}
