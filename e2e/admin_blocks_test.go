package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

const withLogins = `
provider "mock" {
  # Ask Ada before you touch these.
  login {
    name     = "first" # the old account
    password = "password-of-first"

    limit { rate = 1 } # a second
  }

  # The new account.
  login {
    name   =   "second"
    helper = "/opt/helper" // by hand only
    password = "password-of-second"
    limit {
      rate=2 # agreed in May
    }
  }
}
`

// login is one that a provider says it was given.
type login struct {
	Name     string
	Rate     float64
	Password string `json:"password_sha256"`
}

func loginsOf(t *testing.T, b *harness.Broker) []login {
	t.Helper()
	var told struct{ Logins []login }
	result := b.Execute(t, map[string]any{"language": "mock", "code": `{"echo": true}`})
	assert.NilError(t, json.Unmarshal(result.Result, &told), "%s", result.Result)
	return told.Logins
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// shownLogins are the blocks as an administrator gets them, to be changed and sent back.
func shownLogins(t *testing.T, c configured) []map[string]any {
	t.Helper()
	var logins []map[string]any
	assert.NilError(t, json.Unmarshal([]byte(c.setting(t, "mock", "login")), &logins))
	return logins
}

func saveLogins(t *testing.T, b *harness.Broker, logins any) harness.Answer {
	t.Helper()
	return change(t, b, http.MethodPost, "/config", configOf(t, b).etag, map[string]any{"provider_type": "mock", "config": map[string]any{"login": logins}})
}

func TestAnAdministratorChangesWhatStandsInBlocks(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, withLogins)
	before := fileOf(t, b)
	logins := shownLogins(t, configOf(t, b))
	assert.Equal(t, logins[0]["password"], "****irst")

	// A value two blocks deep: the provider gets it, and the file has it in its place.
	logins[1]["limit"].(map[string]any)["rate"] = 2.5
	done := changed(t, saveLogins(t, b, logins))
	assert.Equal(t, done.Result, "applied")
	assert.Equal(t, fileOf(t, b), strings.Replace(before, "rate=2 # agreed in May", "rate=2.5 # agreed in May", 1))
	assert.DeepEqual(t, loginsOf(t, b), []login{{"first", 1, sumOf("password-of-first")}, {"second", 2.5, sumOf("password-of-second")}})

	// Tried and not written.
	text := fileOf(t, b)
	var trial struct {
		Success bool
		Field   string
		Message string
	}
	change(t, b, http.MethodPost, "/test", "", map[string]any{"provider_type": "mock", "config": map[string]any{"login": []any{map[string]any{"password": "hunter2-hunter2"}}}}).Into(t, &trial)
	assert.Check(t, !trial.Success && is.Contains(trial.Message, "changed in the file")().Success(), "%v", trial)
	logins[1]["name"] = "tried"
	change(t, b, http.MethodPost, "/test", "", map[string]any{"provider_type": "mock", "config": map[string]any{"login": logins}}).Into(t, &trial)
	assert.Check(t, trial.Success, "%v", trial)
	assert.Equal(t, fileOf(t, b), text)

	// One that comes: its secret is sealed, and the others are who they were.
	logins[1]["name"] = "second"
	third := map[string]any{"name": "third", "password": "password-of-third", "limit": map[string]any{"rate": 3}}
	changed(t, saveLogins(t, b, append([]map[string]any{third}, logins...)))
	text = fileOf(t, b)
	assert.Check(t, is.Contains(text, `password = sealed("sb1:`))
	assert.Check(t, !strings.Contains(text, "password-of-third"))
	assert.Check(t, is.Contains(text, "# Ask Ada before you touch these.\n  login {\n    name     = \"first\" # the old account\n"))
	assert.DeepEqual(t, loginsOf(t, b), []login{
		{"third", 3, sumOf("password-of-third")}, {"first", 1, sumOf("password-of-first")}, {"second", 2.5, sumOf("password-of-second")},
	})

	// One that goes takes its comment along.
	logins = shownLogins(t, configOf(t, b))
	changed(t, saveLogins(t, b, []any{logins[0], logins[2]}))
	assert.Check(t, !strings.Contains(fileOf(t, b), "Ask Ada"))
	assert.DeepEqual(t, loginsOf(t, b), []login{{"third", 3, sumOf("password-of-third")}, {"second", 2.5, sumOf("password-of-second")}})
	assert.Check(t, !strings.Contains(b.Log(), "password-of"))
	said := string(b.Do(http.MethodGet, adminAPI+"/generations", adminToken, nil).Body) + string(b.Do(http.MethodGet, adminAPI+"/config", adminToken, nil).Body)
	assert.Check(t, !strings.Contains(said, "password-of"))
}

func TestChangesInBlocksThatAreRefused(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, withLogins)
	before := fileOf(t, b)
	limit := map[string]any{"rate": 2}
	for name, test := range map[string]struct {
		first, second map[string]any
		field         string
	}{
		"out of bounds":             {map[string]any{"name": "first", "password": "****irst", "limit": map[string]any{"rate": 101}}, nil, "config.login[0].limit.rate"},
		"nothing that it must have": {map[string]any{"name": "first", "password": "****irst", "limit": map[string]any{}}, nil, "config.login[0].limit.rate"},
		"another's secret":          {map[string]any{"name": "first", "password": "****cond", "limit": map[string]any{"rate": 1}}, nil, "config.login[0].password"},
		"another program":           {nil, map[string]any{"name": "second", "password": "****cond", "helper": "/tmp/mine", "limit": limit}, "config.login[1].helper"},
		"no such setting":           {nil, map[string]any{"name": "second", "password": "****cond", "helper": "/opt/helper", "none": "hunter2", "limit": limit}, "config.login[1].none"},
	} {
		t.Run(name, func(t *testing.T) {
			logins := shownLogins(t, configOf(t, b))
			if test.first != nil {
				logins[0] = test.first
			}
			if test.second != nil {
				logins[1] = test.second
			}
			problem := harness.Refused(t, saveLogins(t, b, logins), http.StatusBadRequest, "SB002")
			assert.Equal(t, problem.Field, test.field)
		})
	}
	t.Run("what the plugin refuses", func(t *testing.T) {
		answer := change(t, b, http.MethodPost, "/config", "", map[string]any{"provider_type": "mock", "config": map[string]any{
			"on_validate": `{"fail": "SB002", "field": "login[1].limit.rate", "message": "is more than was paid for"}`,
		}})
		problem := harness.Refused(t, answer, http.StatusBadRequest, "SB002")
		assert.Equal(t, problem.Field, "config.login[1].limit.rate")
		assert.Check(t, is.Contains(string(answer.Body), "more than was paid for"))
	})
	assert.Equal(t, fileOf(t, b), before)
	assert.Equal(t, configOf(t, b).Meta.Generation, 1)
}
