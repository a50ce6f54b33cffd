package wire_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// hostile is a plugin without the SDK, which answers what it likes.
type hostile struct {
	providerv1.UnimplementedProviderServiceServer
	describe *providerv1.DescribeResponse
	health   *providerv1.HealthResponse
	instance *providerv1.Instance
	list     []*providerv1.Instance
	events   []*providerv1.ExecuteResponse
	endless  *providerv1.ExecuteResponse
	err      error
}

var _ providerv1.ProviderServiceServer = (*hostile)(nil)

func (h *hostile) Describe(context.Context, *providerv1.DescribeRequest) (*providerv1.DescribeResponse, error) {
	if h.describe == nil {
		return &providerv1.DescribeResponse{Name: "hostile"}, nil
	}
	return h.describe, nil
}

func (h *hostile) Health(context.Context, *providerv1.HealthRequest) (*providerv1.HealthResponse, error) {
	return h.health, h.err
}

func (h *hostile) Create(context.Context, *providerv1.CreateRequest) (*providerv1.CreateResponse, error) {
	return &providerv1.CreateResponse{Instance: h.instance}, nil
}

func (h *hostile) List(context.Context, *providerv1.ListRequest) (*providerv1.ListResponse, error) {
	if h.list != nil {
		return &providerv1.ListResponse{Instances: h.list}, nil
	}
	return &providerv1.ListResponse{Instances: []*providerv1.Instance{{Id: "fine"}, h.instance}}, nil
}

func (h *hostile) Execute(_ *providerv1.ExecuteRequest, stream grpc.ServerStreamingServer[providerv1.ExecuteResponse]) error {
	for _, event := range h.events {
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	for h.endless != nil {
		if err := stream.Send(h.endless); err != nil {
			return err
		}
	}
	return h.err
}

func connectHostile(t *testing.T, h *hostile) (*wire.Client, error) {
	t.Helper()
	return wire.NewClient(t.Context(), dial(t, func(s *grpc.Server) { providerv1.RegisterProviderServiceServer(s, h) }))
}

func TestAHostileDescriptionIsRefused(t *testing.T) {
	field := func(change func(*providerv1.Field)) *providerv1.DescribeResponse {
		f := &providerv1.Field{Name: "f", Type: "string"}
		change(f)
		return &providerv1.DescribeResponse{Name: "ok", Schema: []*providerv1.Field{f}}
	}
	many := strings.Split(strings.Repeat("x,", 101), ",")
	for name, test := range map[string]struct {
		response *providerv1.DescribeResponse
		message  string
	}{
		"no name":                        {&providerv1.DescribeResponse{}, `name "" is not of the form`},
		"a name that is a path":          {&providerv1.DescribeResponse{Name: "../x"}, `name "../x" is not of the form`},
		"a name of a megabyte":           {&providerv1.DescribeResponse{Name: strings.Repeat("x", 1<<20)}, "is not of the form"},
		"a page in place of an icon":     {&providerv1.DescribeResponse{Name: "ok", Icon: "data:text/html;base64,PGI+"}, "the icon"},
		"a thousand tags":                {&providerv1.DescribeResponse{Name: "ok", Tags: make([]string, 1000)}, "more than 16"},
		"a summary of a megabyte":        {&providerv1.DescribeResponse{Name: "ok", Summary: strings.Repeat("x", 1<<20)}, "version or summary is longer"},
		"too many languages":             {&providerv1.DescribeResponse{Name: "ok", Languages: many}, "more than 100 languages"},
		"a language with a line end":     {&providerv1.DescribeResponse{Name: "ok", Languages: []string{"py\nthon"}}, `languages: "py\nthon" is not of the form`},
		"a capability in capitals":       {&providerv1.DescribeResponse{Name: "ok", Capabilities: []string{"FILES"}}, `capabilities: "FILES" is not of the form`},
		"a template without a name":      {&providerv1.DescribeResponse{Name: "ok", Templates: []*providerv1.Template{{}}}, `template "" is not of the form`},
		"a template described at length": {&providerv1.DescribeResponse{Name: "ok", Templates: []*providerv1.Template{{Name: "t", Description: strings.Repeat("x", 1<<20)}}}, `template "t": the description is more than one line`},
		"a template of many languages":   {&providerv1.DescribeResponse{Name: "ok", Templates: []*providerv1.Template{{Name: "t", Languages: many}}}, `template "t": more than 100`},
		"a version for the terminal":     {&providerv1.DescribeResponse{Name: "ok", Version: "1\x1b[31m"}, "more than one line of printable text"},
		"a description for the terminal": {field(func(f *providerv1.Field) { f.Description = "\x1b[31m" }), "control characters"},
		"a pattern that grows":           {field(func(f *providerv1.Field) { f.Pattern = "(" + strings.Repeat("a", 900) + "){1000}" }), "too large once its repetitions are written out"},
		"a template's language":          {&providerv1.DescribeResponse{Name: "ok", Templates: []*providerv1.Template{{Name: "t", Languages: []string{" "}}}}, `template "t": " " is not of the form`},
		"a field without a name":         {field(func(f *providerv1.Field) { f.Name = "" }), `field 0: name ""`},
		"a field that is the broker's":   {field(func(f *providerv1.Field) { f.Name = "sha256" }), "reserved"},
		"a field of an unknown type":     {field(func(f *providerv1.Field) { f.Type = "secret" }), `type "secret" is not one of`},
		"a pattern that does not end":    {field(func(f *providerv1.Field) { f.Pattern = "(" }), "pattern"},
		"a default of another type":      {field(func(f *providerv1.Field) { f.Default = structpb.NewNumberValue(1) }), "default must be a string"},
		"bounds that cross":              {field(func(f *providerv1.Field) { f.Min, f.Max = sdk.Bound(2), sdk.Bound(1) }), "min"},
		"bounds that are no numbers":     {field(func(f *providerv1.Field) { f.Min, f.Max = sdk.Bound(math.NaN()), sdk.Bound(1) }), "min"},
		"a required field with default":  {field(func(f *providerv1.Field) { f.Required, f.Default = true, structpb.NewStringValue("x") }), "required"},
		"two fields of one name":         {&providerv1.DescribeResponse{Name: "ok", Schema: []*providerv1.Field{{Name: "f", Type: "string"}, {Name: "f", Type: "string"}}}, "declared twice"},
		"a description of a megabyte":    {field(func(f *providerv1.Field) { f.Description = strings.Repeat("x", 1<<20) }), "longer than"},
		"more fields than anybody needs": {&providerv1.DescribeResponse{Name: "ok", Schema: make([]*providerv1.Field, 201)}, "at most 200"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := connectHostile(t, &hostile{describe: test.response})
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
			assert.Assert(t, is.ErrorContains(err, "the plugin's description is not acceptable"))
			assert.Assert(t, is.ErrorContains(err, test.message))
			assert.Assert(t, len(err.Error()) < 1000, "the error repeats too much of the plugin's words")
		})
	}
}

func TestHostileAnswersAreThePluginsFault(t *testing.T) {
	result := func(change func(*providerv1.ExecuteResult)) []*providerv1.ExecuteResponse {
		r := &providerv1.ExecuteResult{Status: "succeeded"}
		change(r)
		return []*providerv1.ExecuteResponse{{Event: &providerv1.ExecuteResponse_Result{Result: r}}}
	}
	output := func(event *providerv1.ExecuteResponse) []*providerv1.ExecuteResponse {
		return []*providerv1.ExecuteResponse{event, event}
	}
	half := []byte(strings.Repeat("x", 501))
	for name, test := range map[string]struct {
		events  []*providerv1.ExecuteResponse
		message string
	}{
		"no result":               {nil, "ended an execution without a result"},
		"only events of tomorrow": {[]*providerv1.ExecuteResponse{{}, {}}, "ended an execution without a result"},
		"an unknown status":       {result(func(r *providerv1.ExecuteResult) { r.Status = "splendid" }), `unknown status "splendid"`},
		"no status":               {result(func(r *providerv1.ExecuteResult) { r.Status = "" }), `unknown status ""`},
		"a result without value":  {[]*providerv1.ExecuteResponse{{Event: &providerv1.ExecuteResponse_Result{}}}, `unknown status ""`},
		"half a JSON":             {result(func(r *providerv1.ExecuteResult) { r.Result = []byte(`{"a":`) }), "a result that is not JSON"},
		"JSON above the limit":    {result(func(r *providerv1.ExecuteResult) { r.Result = []byte(`"` + strings.Repeat("x", 999) + `"`) }), "a result above the limit"},
		"an empty JSON":           {result(func(r *providerv1.ExecuteResult) { r.Result = []byte{} }), "a result that is not JSON"},
		"JSON of infinite depth":  {result(func(r *providerv1.ExecuteResult) { r.Result = []byte(strings.Repeat("[", 1<<20)) }), "a result that is not JSON"},
		"a run of a thousand years": {result(func(r *providerv1.ExecuteResult) {
			r.Duration = &durationpb.Duration{Seconds: 1000 * 365 * 24 * 3600}
		}), "an impossible duration"},
		"a success that exits with 5":                   {result(func(r *providerv1.ExecuteResult) { r.ExitCode = 5 }), "succeeded with the exit code 5"},
		"a failure that exits with 0":                   {result(func(r *providerv1.ExecuteResult) { r.Status = "failed" }), "failed with the exit code 0"},
		"an exit code below zero":                       {result(func(r *providerv1.ExecuteResult) { r.Status, r.ExitCode = "failed", -1 }), "the exit code -1"},
		"an exit code of a timeout that no process has": {result(func(r *providerv1.ExecuteResult) { r.Status, r.ExitCode = "timeout", 256 }), "the exit code 256"},
		"two results":                                   {append(result(func(*providerv1.ExecuteResult) {}), result(func(*providerv1.ExecuteResult) {})...), "went on after its last message"},
		"output after the result": {append(result(func(*providerv1.ExecuteResult) {}),
			&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Stdout{Stdout: []byte("more")}}), "went on after its last message"},
		"a detail of a megabyte": {result(func(r *providerv1.ExecuteResult) { r.Detail = strings.Repeat("x", 1<<20) }), "a detail that is too long"},
		"a crowd of findings":    {result(func(r *providerv1.ExecuteResult) { r.Findings = make([]*providerv1.Finding, 51) }), "more than 50 findings"},
		"a rule of a megabyte": {result(func(r *providerv1.ExecuteResult) {
			r.Findings = []*providerv1.Finding{{Rule: strings.Repeat("x", 1<<20)}}
		}), "a finding that is too long"},
		"a finding of a megabyte": {result(func(r *providerv1.ExecuteResult) {
			r.Findings = []*providerv1.Finding{{Message: strings.Repeat("x", 1<<20)}}
		}), "a finding that is too long"},
		"too much stdout": {output(&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Stdout{Stdout: half}}), "more output than the limit"},
		"too much stderr": {output(&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Stderr{Stderr: half}}), "more output than the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := connectHostile(t, &hostile{events: test.events})
			assert.NilError(t, err)
			var out recorder
			_, err = execute(t.Context(), client, &out)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
			assert.Assert(t, is.ErrorContains(err, test.message))
			assert.Assert(t, out.stdout.Len()+out.stderr.Len() <= 1000)
		})
	}
}

func TestNumbersBelowZeroAreTakenForZero(t *testing.T) {
	client, err := connectHostile(t, &hostile{events: []*providerv1.ExecuteResponse{{Event: &providerv1.ExecuteResponse_Result{Result: &providerv1.ExecuteResult{
		Status: "succeeded", Duration: &durationpb.Duration{Seconds: -5}, PeakMemoryBytes: -1,
		Findings: []*providerv1.Finding{{Line: -1, Column: -2, Rule: "r"}},
	}}}}})
	assert.NilError(t, err)
	result, err := execute(t.Context(), client, &recorder{})
	assert.NilError(t, err)
	assert.DeepEqual(t, result, sdk.ExecuteResult{Status: sdk.StatusSucceeded, Findings: []sdk.Finding{{Rule: "r"}}})
}

func TestHostileInstancesAreRefused(t *testing.T) {
	crowd := map[string]string{}
	for i := range 101 {
		crowd[strings.Repeat("k", i+1)] = ""
	}
	for name, test := range map[string]struct {
		instance *providerv1.Instance
		message  string
	}{
		"no instance":              {nil, `the ID "", which is not of the form`},
		"no ID":                    {&providerv1.Instance{}, `the ID "", which is not of the form`},
		"an ID that is a path":     {&providerv1.Instance{Id: "../../etc"}, `the ID "../../etc"`},
		"an ID with a line end":    {&providerv1.Instance{Id: "a\nb"}, `the ID "a\nb"`},
		"an ID that is an option":  {&providerv1.Instance{Id: "--all"}, `the ID "--all"`},
		"an ID with a colon":       {&providerv1.Instance{Id: "a:b"}, `the ID "a:b"`},
		"an ID of a megabyte":      {&providerv1.Instance{Id: strings.Repeat("x", 1<<20)}, "which is not of the form"},
		"more labels than allowed": {&providerv1.Instance{Id: "a", Labels: crowd}, "more than 100 labels"},
		"metadata of a megabyte":   {&providerv1.Instance{Id: "a", Metadata: map[string]string{"k": strings.Repeat("x", 1<<20)}}, "above 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := connectHostile(t, &hostile{instance: test.instance})
			assert.NilError(t, err)
			_, err = client.Create(t.Context(), sdk.CreateRequest{})
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
			assert.Assert(t, is.ErrorContains(err, test.message))
			_, err = client.List(t.Context())
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
		})
	}
}

func TestAHostileListIsRefused(t *testing.T) {
	many := make([]*providerv1.Instance, 10_001)
	for i := range many {
		many[i] = &providerv1.Instance{Id: fmt.Sprint("i", i)}
	}
	for name, test := range map[string]struct {
		list    []*providerv1.Instance
		message string
	}{
		"an instance twice":            {[]*providerv1.Instance{{Id: "a"}, {Id: "b"}, {Id: "a"}}, `listed the instance "a" twice`},
		"more instances than expected": {many, "listed more than is acceptable"},
		"a template of a megabyte":     {[]*providerv1.Instance{{Id: "a", Template: strings.Repeat("x", 1<<20)}}, "a template that is too long"},
		"instances that are empty":     {make([]*providerv1.Instance, 300_000), "the message has too many fields"},
		"too large a list":             {[]*providerv1.Instance{{Id: strings.Repeat("x", 9<<20)}}, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := connectHostile(t, &hostile{list: test.list})
			assert.NilError(t, err)
			_, err = client.List(t.Context())
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
			assert.Assert(t, is.ErrorContains(err, test.message))
			assert.Assert(t, len(err.Error()) < 1000)
		})
	}
	client, err := connectHostile(t, &hostile{list: many[:10_000]})
	assert.NilError(t, err)
	list, err := client.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 10_000)
}

func TestAnExecutionThatSaysNothingEnds(t *testing.T) {
	for name, event := range map[string]*providerv1.ExecuteResponse{
		"empty output":       {Event: &providerv1.ExecuteResponse_Stdout{}},
		"empty errors":       {Event: &providerv1.ExecuteResponse_Stderr{}},
		"events of tomorrow": {},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := connectHostile(t, &hostile{endless: event})
			assert.NilError(t, err)
			_, err = execute(t.Context(), client, &recorder{})
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
			assert.Assert(t, is.ErrorContains(err, "sent nothing but empty messages"))
		})
	}
}

func TestErrorsAreShownAndNotObeyed(t *testing.T) {
	evil := "a\x1b[31m\u202e\x00\x07\r\nb\tc"
	for name, err := range map[string]error{
		"with a code":    wire.EncodeError(&sdk.Error{Code: sdk.CodeUnavailable, Message: evil, Field: evil, Capability: sdk.Capability(evil)}),
		"without a code": status.Error(codes.Internal, evil),
	} {
		t.Run(name, func(t *testing.T) {
			got := wire.DecodeError(err)
			assert.Assert(t, is.ErrorContains(got, "a\uFFFD[31m\uFFFD\uFFFD\uFFFD\uFFFD\nb\tc"))
			assert.Assert(t, !strings.ContainsAny(got.Error(), "\x1b\u202e\x00\x07\r"))
		})
	}
}

func TestHostileHealthIsRefused(t *testing.T) {
	for name, health := range map[string]*providerv1.HealthResponse{
		"a reason of a megabyte": {Reason: strings.Repeat("x", 1<<20)},
		"a detail of a megabyte": {Details: map[string]string{"k": strings.Repeat("x", 1<<20)}},
		"a crowd of metrics":     {Metrics: make([]*providerv1.Metric, 201)},
		"a metric of a megabyte": {Metrics: []*providerv1.Metric{{Name: strings.Repeat("x", 1<<20)}}},
		"a metric without value": {Metrics: []*providerv1.Metric{nil}},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := connectHostile(t, &hostile{health: health})
			assert.NilError(t, err)
			_, err = client.Health(t.Context())
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
			assert.Assert(t, len(err.Error()) < 1000)
		})
	}
}

func TestStatusesWithoutOurDetailGetACode(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code sdk.Code
	}{
		"a lost connection":   {status.Error(codes.Unavailable, "dial unix /run/secret/path"), sdk.CodeUnavailable},
		"a call that is not":  {status.Error(codes.Unimplemented, "unknown method"), sdk.CodeNotSupported},
		"too large a message": {status.Error(codes.ResourceExhausted, "too large"), sdk.CodeInternal},
		"anything else":       {status.Error(codes.DataLoss, "lost"), sdk.CodeInternal},
		"no status at all":    {errors.New("plain"), sdk.CodeInternal},
		"a code of tomorrow":  {wire.EncodeError(&sdk.Error{Code: "SB999", Message: "new"}), sdk.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			err := wire.DecodeError(test.err)
			assert.Equal(t, sdk.CodeOf(err), test.code, "%v", err)
			assert.Assert(t, !strings.Contains(err.Error(), "/run/secret"))
		})
	}
}

func TestAResultIsWorthNothingWithoutAGoodEnd(t *testing.T) {
	events := []*providerv1.ExecuteResponse{{Event: &providerv1.ExecuteResponse_Result{Result: &providerv1.ExecuteResult{Status: "succeeded"}}}}
	for name, test := range map[string]struct {
		err     error
		code    sdk.Code
		message string
	}{
		"an error of its own": {status.Error(codes.DataLoss, "lost"), sdk.CodeInternal, "took back what it had answered"},
		"a coded error":       {wire.EncodeError(&sdk.Error{Code: sdk.CodeQuotaExceeded, Message: "full"}), sdk.CodeInternal, "took back what it had answered"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := connectHostile(t, &hostile{events: events, err: test.err})
			assert.NilError(t, err)
			result, err := execute(t.Context(), client, &recorder{})
			assert.Equal(t, sdk.CodeOf(err), test.code, "%v", err)
			assert.Assert(t, is.ErrorContains(err, test.message))
			assert.DeepEqual(t, result, sdk.ExecuteResult{})
		})
	}
}

func TestStoppedCodeHasAnyExitCode(t *testing.T) {
	for _, stopped := range []sdk.Status{sdk.StatusTimeout, sdk.StatusOutOfMemory, sdk.StatusBlocked, sdk.StatusCancelled} {
		for _, code := range []int32{0, 1, 255} {
			client, err := connectHostile(t, &hostile{events: []*providerv1.ExecuteResponse{{Event: &providerv1.ExecuteResponse_Result{
				Result: &providerv1.ExecuteResult{Status: string(stopped), ExitCode: code},
			}}}})
			assert.NilError(t, err)
			result, err := execute(t.Context(), client, &recorder{})
			assert.NilError(t, err)
			assert.Equal(t, result.ExitCode, int(code))
		}
	}
}
