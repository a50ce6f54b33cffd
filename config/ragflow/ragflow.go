// Package ragflow makes blocks of a configuration of the sandbox settings of RAGFlow, as its
// database, its admin API and its founding specification have them.
//
// Import is its entry. What there is no counterpart for is noted and left out: this package
// guesses nothing. Whether the blocks are right is for config.Load and the plugins to say.
package ragflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// Imported is what came out.
type Imported struct {
	// HCL has the blocks.
	HCL []byte
	// Notes say what was left out and why, and what is still to be done. They have names
	// and no values.
	Notes []string
}

// Seal makes the argument of sealed() of a secret.
type Seal func(secret string) (string, error)

// Import reads settings and makes blocks of them. Without seal a secret is not written:
// the block takes it from an environment variable then, which a note names. The error says
// what is wrong with the text.
func Import(text []byte, seal Seal) (Imported, error) {
	all, err := parse(text)
	if err != nil {
		return Imported{}, err
	}
	w := &writer{file: hclwrite.NewEmptyFile(), seal: seal}
	var taken []string
	for _, id := range slices.Sorted(maps.Keys(all.providers)) {
		ok, err := w.provider(id, all.providers[id])
		if err != nil {
			return Imported{}, err
		}
		if ok {
			taken = append(taken, id)
		}
	}
	if len(taken) == 0 {
		return Imported{}, errors.New("there are no settings of a provider that the broker has: " + strings.Join(w.notes, "; "))
	}
	switch {
	case slices.Contains(taken, all.active):
		w.gap()
		w.file.Body().AppendNewBlock("providers", nil).Body().SetAttributeValue("active", cty.StringVal(all.active))
	case all.active != "":
		w.note("the active provider is %q there, which was left out: name another in the block providers", all.active)
	case len(taken) > 1:
		w.note("it is not said which provider is active: name it in the block providers")
	}
	return Imported{HCL: hclwrite.Format(w.file.Bytes()), Notes: w.notes}, nil
}

// settings of all providers, by the names that RAGFlow has for them.
type settings struct {
	active    string
	providers map[string]map[string]any
}

const rowPrefix = "sandbox."

// parse knows the rows of system_settings, as a list or by name; the answers and requests
// of RAGFlow's admin API, about one provider; and those of the specification, about all.
func parse(text []byte) (settings, error) {
	all := settings{providers: map[string]map[string]any{}}
	value, err := decode(text)
	if err != nil {
		return all, fmt.Errorf("the settings are not JSON: %w", err)
	}
	if rows, ok := value.([]any); ok {
		named := map[string]any{}
		for _, row := range rows {
			if fields, ok := row.(map[string]any); ok {
				if name, ok := fields["name"].(string); ok {
					named[name] = fields["value"]
				}
			}
		}
		value = named
	}
	object, ok := value.(map[string]any)
	if inner, is := object["data"].(map[string]any); is {
		object = inner
	}
	if !ok {
		return all, errors.New("the settings must be a JSON object, or a list of rows")
	}
	if id, ok := object["provider_type"].(string); ok {
		all.active = id
		return all, all.add(id, object["config"])
	}
	for name, value := range object {
		switch name {
		case "active", rowPrefix + "provider_type":
			all.active, _ = value.(string)
			continue
		}
		if err := all.add(strings.TrimPrefix(name, rowPrefix), value); err != nil {
			return all, err
		}
	}
	return all, nil
}

// decode reads one value, with numbers as they stand.
func decode(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows behind them")
	}
	return value, nil
}

// add takes the settings of a provider, which may be JSON as text.
func (s settings) add(id string, value any) error {
	if text, ok := value.(string); ok {
		var err error
		if value, err = decode([]byte(text)); err != nil {
			return fmt.Errorf("the settings of %q are not JSON", id)
		}
	}
	object, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("the settings of %q are not an object", id)
	}
	s.providers[id] = object
	return nil
}

// kind of a setting.
type kind int

const (
	plain  kind = iota // text, a number or a boolean, as it is
	secret             // text that is not shown
	mib                // of memory, such as 256m
	length             // seconds, which become a duration
)

// setting is what becomes of one.
type setting struct {
	to   string
	kind kind
	why  string // it is left out
}

// provider is what becomes of one.
type provider struct {
	plugin   string // "" for one that the broker does not have
	why      string // then
	settings map[string]setting
	needs    []string // of which one must be given
}

const (
	ourLimits  = "time limits are the broker's own: limits.default_timeout and max_timeout"
	ourRetries = "the broker and its provider try again by themselves"
	ourAddress = "the broker takes the place of the executor manager; RAGFlow is pointed at its front door"
	ourSandbox = "sandboxes are the provider's own; see its page"
	ourOutput  = "bounds of output and artifacts are in the block limits"
)

var providers = map[string]provider{
	"self_managed": {plugin: "self_managed", settings: map[string]setting{
		"pool_size": {to: "pool_size"}, "executor_manager_pool_size": {to: "pool_size"},
		"max_memory": {to: "memory_mb", kind: mib},
		"endpoint":   {why: ourAddress}, "executor_manager_port": {why: ourAddress},
		"timeout": {why: ourLimits}, "sandbox_timeout": {why: ourLimits}, "max_retries": {why: ourRetries},
		"executor_manager_image": {why: ourSandbox}, "base_python_image": {why: ourSandbox}, "base_nodejs_image": {why: ourSandbox},
		"enable_seccomp":      {why: "gVisor stands between the code and the kernel"},
		"enable_ast_analysis": {why: "the code policy is the setting policy"},
	}},
	"e2b": {plugin: "e2b", needs: []string{"api_key"}, settings: map[string]setting{
		"api_key": {to: "api_key", kind: secret}, "region": {to: "region"}, "timeout": {why: ourLimits},
	}},
	"aliyun_codeinterpreter": {plugin: "aliyun", needs: []string{"account_id"}, settings: map[string]setting{
		"access_key_id": {to: "access_key_id", kind: secret}, "access_key_secret": {to: "access_key_secret", kind: secret},
		"account_id": {to: "account_id"}, "region": {to: "region"}, "template_name": {to: "template_name"}, "timeout": {to: "timeout"},
		"workspace_id": {why: "AgentRun has none"},
	}},
	"ucloud_agent_sandbox": {plugin: "e2b", needs: []string{"domain", "api_url"}, settings: map[string]setting{
		"api_key": {to: "api_key", kind: secret}, "domain": {to: "domain"}, "api_url": {to: "api_url"}, "template": {to: "template"},
		"allow_internet_access": {to: "allow_internet"}, "sandbox_timeout": {to: "timeout", kind: length},
		"region": {why: "the service is found by its domain"}, "insecure_http": {why: "api_url says it"}, "timeout": {why: ourLimits},
		"max_output_bytes": {why: ourOutput}, "max_artifacts": {why: ourOutput}, "max_artifact_bytes": {why: ourOutput},
	}},
	"local": {why: "it runs code on the machine itself; self_managed has sandboxes on it"},
	"ssh":   {why: "it runs code on another machine without a sandbox"},
	"tenki": {why: "the broker has no provider for it"},
}

// writer writes blocks.
type writer struct {
	file  *hclwrite.File
	seal  Seal
	notes []string
}

func (w *writer) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

func (w *writer) gap() {
	if len(w.file.Bytes()) > 0 {
		w.file.Body().AppendNewline()
	}
}

// provider writes the block of one, and reports whether it did.
func (w *writer) provider(id string, given map[string]any) (bool, error) {
	known, ok := providers[id]
	switch {
	case !ok:
		w.note("%q was left out: it is no provider of RAGFlow", id)
		return false, nil
	case known.plugin == "":
		w.note("%q was left out: %s", id, known.why)
		return false, nil
	case len(known.needs) > 0 && !slices.ContainsFunc(known.needs, func(name string) bool { return !isEmpty(given[name]) }):
		w.note("%q was left out: it has no %s", id, strings.Join(known.needs, " and no "))
		return false, nil
	}
	w.gap()
	body := w.file.Body().AppendNewBlock("provider", []string{id}).Body()
	if known.plugin != id {
		body.SetAttributeValue("plugin", cty.StringVal(known.plugin))
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		one, ok := known.settings[name]
		switch value := given[name]; {
		case isEmpty(value):
		case !ok:
			w.note("%q of %s was left out: the broker does not know it", name, id)
		case one.why != "":
			w.note("%s.%s was left out: %s", id, name, one.why)
		case one.kind == secret:
			if err := w.secret(body, id, one.to, value); err != nil {
				return false, err
			}
		default:
			converted, err := convert(one.kind, value)
			if err != nil {
				return false, fmt.Errorf("%s.%s %w", id, name, err)
			}
			body.SetAttributeValue(one.to, converted)
		}
	}
	return true, nil
}

// secret writes a secret sealed, or where it is to come from.
func (w *writer) secret(body *hclwrite.Body, id, name string, value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("%s.%s must be text", id, name)
	}
	call, argument := "env", strings.ToUpper(id+"_"+name)
	if w.seal != nil {
		sealed, err := w.seal(text)
		if err != nil {
			return fmt.Errorf("seal %s.%s: %w", id, name, err)
		}
		call, argument = "sealed", sealed
	} else {
		w.note("%s.%s is taken from the environment variable %s: set it, or import with --key-file to have it sealed", id, name, argument)
	}
	body.SetAttributeRaw(name, hclwrite.TokensForFunctionCall(call, hclwrite.TokensForValue(cty.StringVal(argument))))
	return nil
}

func isEmpty(value any) bool { return value == nil || value == "" }

var memoryForm = regexp.MustCompile(`^([0-9]{1,12})([kmgKMG]?)[iI]?[bB]?$`)

// convert makes a value of the configuration of one of JSON.
func convert(k kind, value any) (cty.Value, error) {
	switch k {
	case mib:
		m := memoryForm.FindStringSubmatch(fmt.Sprint(value))
		if m == nil {
			return cty.NilVal, errors.New("must be a size of memory, such as 256m")
		}
		size, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return cty.NilVal, err
		}
		unit := map[string]float64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[strings.ToLower(m[2])]
		return cty.NumberIntVal(int64(math.Ceil(size * unit / (1 << 20)))), nil
	case length:
		seconds, err := strconv.ParseFloat(fmt.Sprint(value), 64)
		if err != nil || !(seconds >= 0 && seconds <= 1e9) {
			return cty.NilVal, errors.New("must be a number of seconds")
		}
		return cty.StringVal(strconv.FormatFloat(seconds, 'f', -1, 64) + "s"), nil
	}
	switch v := value.(type) {
	case string:
		if u, err := url.Parse(v); err == nil && u.User != nil {
			return cty.NilVal, errors.New("must be an URL without a name or a password, which would stand in the file for all to read")
		}
		return cty.StringVal(v), nil
	case bool:
		return cty.BoolVal(v), nil
	case json.Number:
		// A number such as 1e1000000000 takes all memory as it is written.
		if strings.ContainsAny(v.String(), "eE") {
			return cty.NilVal, errors.New("is a number that cannot be")
		}
		number, err := cty.ParseNumberVal(v.String())
		if err != nil {
			return cty.NilVal, errors.New("is a number that cannot be")
		}
		return number, nil
	default:
		return cty.NilVal, errors.New("must be text, a number, true or false")
	}
}
