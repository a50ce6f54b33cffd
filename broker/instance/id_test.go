package instance_test

import (
	"regexp"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestEveryIDHasTheSameForm(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		for session, form := range map[string]string{
			"":            `^acme:s-[a-z0-9]{20}:[a-z0-9]{20}$`, // of the service's own making
			"A.b_c-D":     `^acme:A\.b_c-D:[a-z0-9]{20}$`,
			"..":          `^acme:\.\.:[a-z0-9]{20}$`,
			"all.allowed": `^acme:all\.allowed:[a-z0-9]{20}$`,
		} {
			info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: session})
			assert.NilError(t, err)
			assert.Check(t, cmp.Regexp(regexp.MustCompile(form), info.ID.String()))
		}
	})
}

func TestASessionThatNoIDCouldHold(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		for _, session := range []string{"s:1", "a/b", "a\n", " ", "a%3Ab", "é", "a\x00"} {
			_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: session})
			assertCode(t, err, sdk.CodeInvalidRequest)
			assertField(t, err, "session_id")
		}
		assert.Check(t, cmp.Len(first.Created(), 0))
	})
}
