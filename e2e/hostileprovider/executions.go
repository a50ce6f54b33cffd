package main

import (
	"bytes"
	"math"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// someExecution are answers to Execute.
func someExecution() map[string]func(*call) {
	events := func(events ...*providerv1.ExecuteResponse) func(*call) {
		return func(c *call) {
			for _, e := range events {
				c.send(e)
			}
			c.end(codes.OK, "", nil)
		}
	}
	endless := func(e *providerv1.ExecuteResponse) func(*call) {
		return func(c *call) {
			for c.send(e) {
			}
		}
	}
	succeeded := func(change func(*providerv1.ExecuteResult)) func(*call) {
		r := &providerv1.ExecuteResult{Status: "succeeded"}
		change(r)
		return events(result(r))
	}
	return map[string]func(*call){
		"output_endless": endless(stdout(bytes.Repeat([]byte("x"), 1<<20))),
		"output_crumbs":  endless(stdout([]byte("x"))),
		"output_nothing": endless(stdout(nil)),
		"output_pieces":  endless(stdout(bytes.Repeat([]byte("x"), 900<<10))),
		"events_unknown": func(c *call) {
			for c.frame(0, 3, []byte{0xfa, 0x7f, 0}) {
			}
		},
		"artifacts_unasked":  endless(&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Artifact{Artifact: &providerv1.Artifact{Kind: "result", Data: make([]byte, 1<<20)}}}),
		"never_a_result":     events(stdout([]byte("hello"))),
		"two_results":        events(result(&providerv1.ExecuteResult{Status: "succeeded"}), result(&providerv1.ExecuteResult{Status: "failed"}), stdout([]byte("more"))),
		"result_then_output": events(result(&providerv1.ExecuteResult{Status: "succeeded"}), stdout([]byte("more"))),
		"result_then_error": func(c *call) {
			c.send(result(&providerv1.ExecuteResult{Status: "succeeded"}))
			c.end(codes.DataLoss, evil, nil)
		},
		"result_then_close": func(c *call) {
			c.send(result(&providerv1.ExecuteResult{Status: "succeeded"}))
			_ = c.conn().Close()
			select {}
		},
		"result_then_nothing": func(c *call) {
			c.send(result(&providerv1.ExecuteResult{Status: "succeeded"}))
			<-c.r.Context().Done()
		},
		"succeeded_with_5":  succeeded(func(r *providerv1.ExecuteResult) { r.ExitCode = 5 }),
		"failed_with_0":     succeeded(func(r *providerv1.ExecuteResult) { r.Status = "failed" }),
		"exit_code_minus_1": succeeded(func(r *providerv1.ExecuteResult) { r.Status, r.ExitCode = "failed", -1 }),
		"exit_code_256":     succeeded(func(r *providerv1.ExecuteResult) { r.Status, r.ExitCode = "timeout", 256 }),
		"result_status":     succeeded(func(r *providerv1.ExecuteResult) { r.Status = evil }),
		"result_huge":       succeeded(func(r *providerv1.ExecuteResult) { r.Result = []byte(`"` + strings.Repeat("x", 3<<20) + `"`) }),
		"result_no_json":    succeeded(func(r *providerv1.ExecuteResult) { r.Result = []byte(`{"a":`) }),
		"result_deep":       succeeded(func(r *providerv1.ExecuteResult) { r.Result = []byte(strings.Repeat("[", 1<<19)) }),
		"result_duration":   succeeded(func(r *providerv1.ExecuteResult) { r.Duration = &durationpb.Duration{Seconds: math.MaxInt64} }),
		"result_findings": func(c *call) { // empty ones
			findings := bytes.Repeat([]byte{0x42, 0}, 400_000)
			data := append([]byte{0x0a, 9}, "succeeded"...)
			data = append(data, findings...)
			c.whole(0, append(append([]byte{0x1a}, uvarint(len(data))...), data...))
		},
		"result_negative": succeeded(func(r *providerv1.ExecuteResult) {
			r.Duration, r.PeakMemoryBytes = &durationpb.Duration{Seconds: -5, Nanos: -7}, math.MinInt64
			r.Findings = []*providerv1.Finding{{Line: -1, Column: math.MinInt32, Rule: "r"}}
		}),
		"result_texts": succeeded(func(r *providerv1.ExecuteResult) {
			r.Detail = evil
			r.Findings = []*providerv1.Finding{{Rule: evil, Message: evil}}
		}),
	}
}

func uvarint(n int) []byte {
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}
