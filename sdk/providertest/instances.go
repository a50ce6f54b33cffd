package providertest

import (
	"crypto/rand"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// templateFor is the template that the broker would choose.
func (s *session) templateFor(l sdk.Language) string {
	d := s.Describe()
	if name := d.TemplateFor(l); name != "" {
		return name
	}
	if len(d.Templates) > 0 {
		return d.Templates[0].Name
	}
	return ""
}

// newLabels are a set of those that the broker gives to an instance.
func newLabels() map[string]string {
	return map[string]string{
		sdk.LabelTenant: "providertest", sdk.LabelSession: "s-" + randomWord(), sdk.LabelInstance: randomWord(),
	}
}

// randomWord has the form of the broker's names for instances.
func randomWord() string { return strings.ToLower(rand.Text())[:20] }

// createRequest asks for an instance as the broker does.
func (s *session) createRequest(l sdk.Language) sdk.CreateRequest {
	return sdk.CreateRequest{Template: s.templateFor(l), Labels: newLabels(), IdempotencyKey: randomWord()}
}

// instance is one that a case has made, with what every case does in one.
type instance struct {
	*scene
	sdk.Instance
}

// request is one for code in the case's language.
func (in instance) request(code string) sdk.ExecuteRequest {
	return sdk.ExecuteRequest{
		InstanceID: in.ID, ExecutionID: randomWord(), Language: in.language, Code: code,
		Timeout: in.suite.within(codeTimeout), OutputLimit: outputLimit,
	}
}

// lasting is one for code that waits until it is stopped: its own timeout shall not
// be what ends it.
func (in instance) lasting(sample string) sdk.ExecuteRequest {
	req := in.request(in.code(sample))
	req.Timeout = in.suite.within(caseTimeout)
	return req
}

// run executes a sample.
func (in instance) run(sample string) outcome {
	return in.execute(in.request(in.code(sample)))
}

// prints runs a sample and checks that it succeeds and what it prints.
func (in instance) prints(sample, want string) { in.run(sample).printed(want) }

// running starts code that waits and returns when it does.
func (in instance) running(sample string) *execution {
	e := in.begin(in.ctx, in.lasting(sample))
	e.saying("ready")
	return e
}
