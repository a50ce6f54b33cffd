package admin_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const blocks = `provider "p" {
  size = 8
  auth { # who
    password = "plain-secret"
    wait     = "90s"
  }
  rules {
    host = env("MERGE_ENDPOINT")
    limit { rate = 2 }
  }
  rules {}
}
`

func TestBlocksAreShownWithoutTheirSecrets(t *testing.T) {
	t.Setenv("MERGE_ENDPOINT", "https://env.example.com")
	d := newDaemon(t, blocks)
	values, hidden := map[string]any{}, map[string]bool{}
	for _, s := range admin.NewConfigurator(d).Configuration().Settings["p"] {
		values[s.Name], hidden[s.Name] = s.Value, s.Masked
	}
	assert.DeepEqual(t, values["auth"], map[string]any{"user": "me", "password": "****cret", "wait": "1m30s"})
	assert.DeepEqual(t, values["rules"], []map[string]any{{"host": "****.com", "limit": map[string]any{"rate": 2.0}}, {}})
	assert.Assert(t, hidden["auth"] && hidden["rules"] && !hidden["size"])

	// Shown and sent back, nothing changes; what stands beside them may.
	sent, err := json.Marshal(map[string]any{"auth": values["auth"], "rules": values["rules"], "size": 9})
	assert.NilError(t, err)
	for _, settings := range []string{string(sent), `{"auth": {"password": "plain-secret", "wait": 90}}`} {
		_, err = admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, settings)})
		assert.NilError(t, err)
		assert.Equal(t, d.text(), "provider \"p\" {\n  size = 9"+blocks[len("provider \"p\" {\n  size = 8"):])
	}
}

// inBlock is a provider block with this in it.
func inBlock(body string) string { return "provider \"p\" {\n" + body + "}\n" }

func TestBlocksAreMergedIntoTheFile(t *testing.T) {
	t.Setenv("MERGE_ENDPOINT", "https://env.example.com")
	const (
		auth  = "  auth { # who\n    # the old one\n    password = \"plain-secret\" // for now\n    wait     = \"90s\"\n  }\n"
		first = "  # first\n  rules {\n    host=\"a\" # A\n    password = \"first-secret\"\n\n    limit { rate = 1 }\n  }\n"
		other = "  # other\n  rules {\n    host   =   \"b\"\n    password = \"other-hidden\"\n  }\n"
		third = "  # third\n  rules {\n    host = env(\"MERGE_ENDPOINT\")\n    pin  = 123456\n    tool = \"/opt/tool\"\n  }\n"
		short = "  rules {\n    host = \"a\"\n    password = \"one\"\n  }\n  rules {\n    host = \"b\"\n    password = \"two\"\n  }\n"

		shownFirst = `{"host": "a", "password": "****cret", "limit": {"rate": 1}}`
		shownOther = `{"host": "b", "password": "****dden"}`
		shownThird = `{"host": "****.com", "pin": "****", "tool": "/opt/tool"}`
	)
	all := first + other + third
	for name, test := range map[string]struct {
		before, settings, after string
	}{
		"a setting in a block":               {auth, `{"auth": {"wait": "2m"}}`, strings.Replace(auth, "90s", "2m", 1)},
		"a secret in a block":                {auth, `{"auth": {"password": "another"}}`, strings.Replace(auth, "plain-secret", "another", 1)},
		"a masked secret beside a change":    {auth, `{"auth": {"password": "****cret", "wait": "2m"}}`, strings.Replace(auth, "90s", "2m", 1)},
		"a setting that comes":               {auth, `{"auth": {"user": "you"}}`, strings.Replace(auth, "\"90s\"\n", "\"90s\"\n    user     = \"you\"\n", 1)},
		"a setting that goes":                {auth, `{"auth": {"password": null}}`, "  auth { # who\n    wait = \"90s\"\n  }\n"},
		"a block that goes":                  {"  size = 1\n\n" + auth, `{"auth": null}`, "  size = 1\n"},
		"a block that comes":                 {"  size = 1\n", `{"auth": {"wait": 5, "second": {"code": "x"}}}`, "  size = 1\n\n  auth {\n    wait = 5\n    second {\n      code = \"x\"\n    }\n  }\n"},
		"an empty block":                     {"  size = 1\n", `{"auth": {}}`, "  size = 1\n\n  auth {\n  }\n"},
		"a block in a block comes":           {auth, `{"auth": {"second": {"code": "x"}}}`, strings.TrimSuffix(auth, "  }\n") + "\n    second {\n      code = \"x\"\n    }\n  }\n"},
		"no blocks":                          {"  size = 1\n", `{"auth": null, "rules": null}`, "  size = 1\n"},
		"an empty list of none":              {"  size = 1\n", `{"rules": []}`, "  size = 1\n"},
		"deep in the first of several":       {all, `{"rules": [` + strings.Replace(shownFirst, `"rate": 1`, `"rate": 2.5`, 1) + `,` + shownOther + `,` + shownThird + `]}`, strings.Replace(all, "rate = 1", "rate = 2.5", 1)},
		"another secret for one of several":  {all, `{"rules": [` + shownFirst + `,{"host": "b", "password": "new"},` + shownThird + `]}`, strings.Replace(all, "other-hidden", "new", 1)},
		"two that tell themselves by masks":  {all, `{"rules": [{"host": "A", "password": "****cret", "limit": {"rate": 1}}, {"host": "B", "password": "****dden"},` + shownThird + `]}`, strings.NewReplacer(`"a"`, `"A"`, `"b"`, `"B"`).Replace(all)},
		"what is not named in a list goes":   {first, `{"rules": [{"host": "a", "password": "****cret"}]}`, "  # first\n  rules {\n    host=\"a\" # A\n    password = \"first-secret\"\n  }\n"},
		"one of several goes":                {all, `{"rules": [` + shownFirst + `,` + shownThird + `]}`, first + third},
		"the first of several goes":          {all, `{"rules": [` + shownOther + `,` + shownThird + `]}`, other + third},
		"one comes behind":                   {all, `{"rules": [` + shownFirst + `,` + shownOther + `,` + shownThird + `, {"limit": {"rate": 3}}]}`, all + "  rules {\n    limit {\n      rate = 3\n    }\n  }\n"},
		"one comes between":                  {all, `{"rules": [` + shownFirst + `, {"host": "new"},` + shownOther + `,` + shownThird + `]}`, first + "  rules {\n    host = \"new\"\n  }\n" + other + third},
		"one comes and one goes":             {all, `{"rules": [` + shownOther + `, {"host": "new"}, ` + shownThird + `]}`, other + "  rules {\n    host = \"new\"\n  }\n" + third},
		"all go":                             {"  size = 1\n\n" + first + other, `{"rules": null}`, "  size = 1\n"},
		"the first of a list":                {"  size = 1\n", `{"rules": [{"host": "a"}, {"host": "b"}]}`, "  size = 1\n\n  rules {\n    host = \"a\"\n  }\n\n  rules {\n    host = \"b\"\n  }\n"},
		"a list in a list":                   {first, `{"rules": [{"host": "a", "password": "****cret", "limit": {"rate": 1}, "header": [{"name": "n"}]}]}`, strings.TrimSuffix(first, "  }\n") + "\n    header {\n      name = \"n\"\n    }\n  }\n"},
		"short secrets, one block changes":   {short, `{"rules": [{"host": "a", "password": "****"}, {"host": "c", "password": "****"}]}`, strings.Replace(short, `"b"`, `"c"`, 1)},
		"short secrets, given again, swap":   {short, `{"rules": [{"host": "b", "password": "two"}, {"host": "a", "password": "one"}]}`, strings.NewReplacer(`"a"`, `"b"`, `"b"`, `"a"`, "one", "two", "two", "one").Replace(short)},
		"a number that is a secret":          {"  rules {\n    pin = 123456\n  }\n", `{"rules": [{"pin": 654321}]}`, "  rules {\n    pin = 654321\n  }\n"},
		"all of it as text, and as it shows": {all, `{"rules": [{"host": "a", "password": "first-secret", "limit": {"rate": 1.0}, "header": []},` + shownOther + `,` + shownThird + `]}`, all},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, inBlock(test.before))
			_, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, test.settings)})
			assert.NilError(t, err)
			assert.Equal(t, d.text(), inBlock(test.after))
		})
	}
}

// A secret is never another block's because blocks came, went or changed places.
func TestBlocksThatCannotBe(t *testing.T) {
	t.Setenv("MERGE_ENDPOINT", "https://env.example.com")
	const (
		two   = "  rules {\n    host = \"a\"\n    password = \"hunter2-one\"\n  }\n  rules {\n    host = \"b\"\n    password = \"hunter2-two\"\n  }\n"
		short = "  rules {\n    host = \"a\"\n    password = \"hunter2\"\n  }\n  rules {\n    host = \"b\"\n    password = \"hunter3\"\n  }\n"
		twins = "  rules {\n    password = \"hunter2\"\n  }\n  rules {\n    password = \"hunter3\"\n  }\n"
		files = "  auth {\n    helper = \"/opt/helper\"\n  }\n  rules {\n    host = \"a\"\n    tool = \"/opt/tool\"\n  }\n"
		heads = "  rules {\n    host = \"a\"\n    header {\n      name  = \"n\"\n      value = \"hunter2\"\n    }\n  }\n  rules {\n    host = \"b\"\n    header {\n      name  = \"n\"\n      value = \"hunter3\"\n    }\n  }\n"
		env   = "  rules {\n    host = env(\"MERGE_ENDPOINT\")\n  }\n"
	)
	for name, test := range map[string]struct {
		before, settings string
		fields           []string
		says             string
	}{
		"no block":                              {two, `{"auth": "hunter2", "rules": {}}`, []string{"auth", "rules"}, "must be a list of blocks"},
		"an item that is no block":              {two, `{"rules": [{}, "hunter2", null]}`, []string{"rules[1]", "rules[2]"}, "must be a block"},
		"an unknown setting":                    {two, `{"rules": [{"none": 1, "limit": {"rat": 1}}, {}]}`, []string{"rules[0].limit.rat", "rules[0].none"}, "is not a setting"},
		"a value out of bounds":                 {two, `{"rules": [{}, {"limit": {"rate": 101}}]}`, []string{"rules[1].limit.rate"}, "must be at most 100"},
		"the same in one that is new":           {two, `{"rules": [{"host": "a", "password": "****-one"}, {"host": "b", "password": "****-two"}, {"limit": {"rate": "hunter2"}}]}`, []string{"rules[2].limit.rate"}, "must be a number"},
		"a block without what it must have":     {two, `{"auth": {"second": {}}, "rules": [{"header": [{"name": "x"}, {}]}]}`, []string{"auth.second.code", "rules[0].header[1].name"}, "is required"},
		"too many":                              {two, `{"rules": [{}, {}, {}, {}, {}, {}]}`, []string{"rules"}, "must stand at most 5 times"},
		"too many within":                       {two, `{"rules": [{"header": [{}, {}, {}, {}]}]}`, []string{"rules[0].header"}, "must stand at most 3 times"},
		"a name of the broker":                  {two, `{"auth": {"plugin": "x"}}`, []string{"auth.plugin"}, "is not a setting"},
		"another program":                       {files, `{"auth": {"helper": "/tmp/mine"}, "rules": [{"host": "a", "tool": "/tmp/mine"}]}`, []string{"auth.helper", "rules[0].tool"}, "changed in the file"},
		"no program any more":                   {files, `{"auth": null, "rules": [{"host": "a"}]}`, []string{"auth.helper", "rules[0].tool"}, "changed in the file"},
		"a program for another block":           {files, `{"rules": [{"host": "b"}, {"host": "a", "tool": "/opt/tool"}, {"host": "c", "tool": "/opt/tool"}]}`, []string{"rules[2].tool"}, "changed in the file"},
		"a block with a program goes":           {files, `{"rules": []}`, []string{"rules[0].tool"}, "changed in the file"},
		"masks that changed places":             {two, `{"rules": [{"host": "b", "password": "****-two"}, {"host": "a", "password": "****-one"}]}`, []string{"rules[1].password"}, "changed places"},
		"masks that changed hosts":              {two, `{"rules": [{"host": "a", "password": "****-two"}, {"host": "b", "password": "****-one"}]}`, []string{"rules[0].password", "rules[1].password"}, "another secret"},
		"short masks in two that change":        {short, `{"rules": [{"host": "b2", "password": "****"}, {"host": "a2", "password": "****"}]}`, []string{"rules[0].password", "rules[1].password"}, "give the value itself"},
		"short masks that changed places":       {short, `{"rules": [{"host": "b", "password": "****"}, {"host": "a", "password": "****"}]}`, []string{"rules[1].password"}, "give the value itself"},
		"a mask in one that is new":             {two, `{"rules": [{"host": "a", "password": "****-one"}, {"host": "b", "password": "****-two"}, {"host": "c", "password": "****-two"}]}`, []string{"rules[2].password"}, "give the value itself"},
		"a mask in one in place of two":         {short, `{"rules": [{"host": "c", "password": "****"}]}`, []string{"rules[0].password"}, "give the value itself"},
		"one of two that are shown the same":    {twins, `{"rules": [{"password": "****"}]}`, []string{"rules[0]"}, "give the value itself"},
		"a list with masks in another block":    {heads, `{"rules": [{"host": "c", "header": [{"name": "n", "value": "****"}]}, {"host": "d", "header": [{"name": "n", "value": "****"}]}]}`, []string{"rules[0].header[0]", "rules[1].header[0]"}, "give the value itself"},
		"what env gives in one that is new":     {env, `{"rules": [{"host": "****.com"}, {"host": "****.com"}]}`, []string{"rules[1].host"}, "give the value itself"},
		"a mask in a block that is not there":   {two, `{"auth": {"password": "****ter2"}}`, []string{"auth.password"}, "give the value itself"},
		"a secret without a key to seal it":     {env, `{"auth": {"password": "hunter2"}}`, []string{"auth.password"}, "keygen"},
		"a secret number":                       {env, `{"rules": [{"host": "****.com", "pin": 123456}]}`, []string{"rules[0].pin"}, "cannot be sealed"},
		"all mistakes at once, new blocks' too": {two, `{"size": 0, "rules": [{"host": 1}, {"limit": 5}, {"pin": "hunter2"}]}`, []string{"rules[0].host", "rules[1].limit", "rules[2].pin", "size"}, "must be a string"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, inBlock(test.before))
			d.try = func(sdk.Settings) admin.Trial {
				t.Error("it was tried")
				return admin.Trial{}
			}
			c := admin.NewConfigurator(d)
			_, saved := c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, test.settings)})
			errs := []error{saved}
			if test.says != "keygen" && test.says != "cannot be sealed" {
				_, tried := c.Test(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, test.settings)})
				errs = append(errs, tried)
			}
			for _, err := range errs {
				wrong, ok := errors.AsType[admin.FieldErrors](err)
				assert.Assert(t, ok, "%v", err)
				var fields []string
				for _, f := range wrong {
					fields = append(fields, f.Field)
				}
				assert.DeepEqual(t, fields, test.fields)
				assert.Check(t, is.Contains(err.Error(), test.says))
				assert.Check(t, !strings.Contains(err.Error(), "hunter"), err.Error())
			}
			assert.Equal(t, d.text(), inBlock(test.before))
		})
	}
}

func TestWhatTheFileComputesInBlocksStays(t *testing.T) {
	t.Setenv("MERGE_ENDPOINT", "https://env.example.com")
	d := newDaemon(t, blocks)
	_, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"rules": [{"host": "x", "limit": {"rate": 2}}, {}]}`)})
	wrong, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok && wrong.Code == sdk.CodeConflict, "%v", err)
	assert.Equal(t, wrong.Field, "rules[0].host")
	assert.Equal(t, d.text(), blocks)
}

func TestBlocksAreTriedAndNotWritten(t *testing.T) {
	t.Setenv("MERGE_ENDPOINT", "https://env.example.com")
	d := newDaemon(t, blocks)
	var tried sdk.Settings
	d.try = func(settings sdk.Settings) admin.Trial {
		tried = settings
		return admin.Trial{Success: true}
	}
	_, err := admin.NewConfigurator(d).Test(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"auth": {"password": "****cret", "user": "you"}, "rules": [{"host": "x", "password": "hunter2", "limit": {"rate": 9}}, {}]}`)})
	assert.NilError(t, err)
	assert.DeepEqual(t, tried.Block("auth"), sdk.Settings{"user": "you", "password": "plain-secret", "wait": 90 * time.Second})
	assert.DeepEqual(t, tried.Blocks("rules"), []sdk.Settings{{"host": "x", "password": "hunter2", "limit": sdk.Settings{"rate": 9.0}}, {}})
	assert.Equal(t, d.text(), blocks)
}

func TestSecretsInBlocksAreSealed(t *testing.T) {
	d := newDaemon(t, withKey+inBlock("  auth {\n    password = \"plain\" # for now\n  }\n"))
	_, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"auth": {"password": "hunter2-hunter2"}, "rules": [{"password": "hunter2-hunter2"}]}`)})
	assert.NilError(t, err)
	assert.Equal(t, sealedText.ReplaceAllString(d.text(), "SEALED"), withKey+inBlock("  auth {\n    password = SEALED # for now\n  }\n\n  rules {\n    password = SEALED\n  }\n"))
	for _, s := range admin.NewConfigurator(d).Configuration().Settings["p"] {
		if s.Name == "rules" {
			assert.DeepEqual(t, s.Value, []map[string]any{{"password": "****ter2"}})
		}
	}
}
