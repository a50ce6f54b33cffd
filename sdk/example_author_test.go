package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What a code means to whoever called, and whether it makes sense to ask again.
func ExampleCode_Info() {
	for _, code := range []sdk.Code{sdk.CodeQuotaExceeded, sdk.CodeNotFound, sdk.CodeUnavailable} {
		info := code.Info()
		fmt.Println(info.Code, info.HTTPStatus, info.Retryable, info.Title)
	}
	// Output:
	// SB008 429 true rate limit or quota exceeded
	// SB013 404 false no such instance, execution, context or file
	// SB009 503 true provider unavailable
}

// A creation that is refused for want of room has made nothing. The broker may ask
// another provider at once, and this one again after a while.
func ExampleErrorf() {
	full := sdk.Errorf(sdk.CodeQuotaExceeded, "the account has as many boxes as it may")
	full.RetryAfter = 10 * time.Second
	full.NoEffect = true
	err := fmt.Errorf("create: %w", full)

	var told *sdk.Error
	fmt.Println(errors.As(err, &told), told.RetryAfter, told.NoEffect)
	fmt.Println(told)
	// Output:
	// true 10s true
	// SB008: the account has as many boxes as it may
}

// An error with a field is shown at the setting, in the file and in the form of an
// administrator.
func ExampleFieldErrorf() {
	err := sdk.FieldErrorf(sdk.CodeInvalidConfig, "endpoint", "there is no such host")
	fmt.Println(err.Field)
	fmt.Println(err)
	// Output:
	// endpoint
	// SB002: endpoint: there is no such host
}

// What an optional method returns that the service cannot do for this instance.
func ExampleNotSupported() {
	err := sdk.NotSupported("boxes", sdk.CapabilityPause)
	fmt.Println(err.Code, err.Capability, err.Code.Info().Retryable)
	// Output: SB015 pause false
}

// An instance that was gone before the code began lets the broker run it in another
// one. One that ended under the code does not, since the code may have done something.
func ExampleExecutionError() {
	gone := sdk.Errorf(sdk.CodeNotFound, "no such box")
	for _, begun := range []bool{false, true} {
		var told *sdk.Error
		errors.As(sdk.ExecutionError(gone, begun), &told)
		fmt.Println(begun, told.Code, told.NoEffect)
	}
	// Output:
	// false SB013 true
	// true SB009 false
}

// Bounds of a number are its own, those of a text or a list are of its length, and
// those of a duration are in seconds.
func ExampleField_bounds() {
	schema := sdk.Schema{
		{Name: "cpus", Type: sdk.TypeNumber, Default: 1.0, Min: sdk.Bound(0.1), Max: sdk.Bound(16)},
		{Name: "prefix", Type: sdk.TypeString, Max: sdk.Bound(3)},
		{Name: "idle", Type: sdk.TypeDuration, Default: "5m", Max: sdk.Bound(3600)},
		{Name: "region", Type: sdk.TypeString, Options: []string{"eu", "us"}},
	}
	fmt.Println(schema.Validate())

	_, mistakes := schema.Resolve(map[string]any{"cpus": 32, "prefix": "long", "idle": "2h", "region": "uk"})
	for _, m := range mistakes {
		fmt.Println(m)
	}
	// Output:
	// <nil>
	// cpus: must be from 0.1 to 16
	// prefix: must have at most 3 characters
	// idle: must be at most 3600 seconds
	// region: must be one of "eu", "us"
}

// What is wrong with a secret is told without it.
func ExampleField_secret() {
	schema := sdk.Schema{{Name: "token", Type: sdk.TypeString, Secret: true, Pattern: "box_[a-z]+"}}
	_, mistakes := schema.Resolve(map[string]any{"token": "hunter2"})
	fmt.Println(mistakes[0])
	// Output: token: must match the pattern box_[a-z]+
}

// Settings go into a struct by their names. What was not given and has no default
// leaves its field alone.
func ExampleSettings_Decode() {
	schema := sdk.Schema{
		{Name: "endpoint", Type: sdk.TypeString, Required: true},
		{Name: "pool_size", Type: sdk.TypeInteger, Default: int64(4)},
		{Name: "max_age", Type: sdk.TypeDuration},
		{Name: "zones", Type: sdk.TypeList},
	}
	settings, mistakes := schema.Resolve(map[string]any{"endpoint": "https://boxes.example", "zones": []any{"a", "b"}})
	fmt.Println(len(mistakes))

	own := struct {
		Endpoint string        `config:"endpoint"`
		PoolSize int           `config:"pool_size"`
		MaxAge   time.Duration `config:"max_age"`
		Zones    []string      `config:"zones"`
	}{MaxAge: time.Hour}
	fmt.Println(settings.Decode(&own))
	fmt.Println(own.Endpoint, own.PoolSize, own.MaxAge, own.Zones)

	// A setting for which the struct has no field is a mistake of the author's.
	err := settings.Decode(&struct{}{})
	fmt.Println(sdk.CodeOf(err))
	// Output:
	// 0
	// <nil>
	// https://boxes.example 4 1h0m0s [a b]
	// SB000
}

// Two settings that do not go together are found before anything is started.
func ExampleInvalidSettings() {
	settings := sdk.Settings{"pool_size": int64(8), "max_boxes": int64(4)}
	var problems []sdk.FieldError
	if settings["pool_size"].(int64) > settings["max_boxes"].(int64) {
		problems = append(problems, sdk.FieldError{Field: "pool_size", Message: "must not be above max_boxes"})
	}
	fmt.Println(sdk.InvalidSettings(problems))
	fmt.Println(sdk.InvalidSettings(nil))
	// Output:
	// SB002: pool_size: must not be above max_boxes
	// <nil>
}

// printed is an Output that prints. The SDK gives a provider one that the broker reads.
type printed struct{}

func (printed) Stdout(p []byte) error {
	fmt.Printf("stdout %q\n", p)
	return nil
}

func (printed) Stderr(p []byte) error {
	fmt.Printf("stderr %q\n", p)
	return nil
}

func (printed) Artifact(a sdk.Artifact) error {
	fmt.Println(a.Kind, a.Name, a.MIMEType, a.Size, len(a.Data))
	return nil
}

// copyTo passes on what a program prints, as it appears.
func copyTo(send func([]byte) error, from io.Reader) error {
	buffer := make([]byte, sdk.MaxOutputChunk)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			// Send copies, so that the buffer can be used again.
			if err := send(buffer[:n]); err != nil {
				return err // nobody listens any more
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Execute sends output as it comes, and does not collect it.
func ExampleOutput() {
	var out sdk.Output = printed{}
	err := errors.Join(
		copyTo(out.Stdout, strings.NewReader("hello\n")),
		copyTo(out.Stderr, strings.NewReader("a warning\n")),
	)
	fmt.Println(err)
	// Output:
	// stdout "hello\n"
	// stderr "a warning\n"
	// <nil>
}

// A file that is larger than what one artifact may have comes without its data.
func ExampleArtifact() {
	limits := sdk.ArtifactLimits{MaxCount: 10, MaxBytes: 8, MaxTotalBytes: 100}
	var out sdk.Output = printed{}
	for _, file := range []struct{ name, text string }{{"small.csv", "a,b"}, {"large.csv", "a,b,c,d,e,f"}} {
		a := sdk.Artifact{Kind: sdk.ArtifactFile, Name: file.name, MIMEType: "text/csv", Size: int64(len(file.text)), Data: []byte(file.text)}
		if a.Size > limits.MaxBytes {
			a.Data, a.Refused = nil, fmt.Sprintf("it has more than %d bytes", limits.MaxBytes)
		}
		if err := out.Artifact(a); err != nil {
			return
		}
	}
	// Output:
	// file small.csv text/csv 3 3
	// file large.csv text/csv 11 0
}

// A time limit is a result, and no error: the code was run. That the call itself was
// given up is an error.
func ExampleExecuteResult_deadline() {
	execute := func(ctx context.Context, req sdk.ExecuteRequest) (sdk.ExecuteResult, error) {
		limited, cancel := context.WithTimeout(ctx, req.Timeout)
		defer cancel()
		err := exec.CommandContext(limited, "sleep", "600").Run()
		switch {
		case ctx.Err() != nil:
			return sdk.ExecuteResult{}, ctx.Err()
		case limited.Err() != nil:
			return sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: 137}, nil
		case err != nil:
			return sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, nil
		}
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
	}
	result, err := execute(context.Background(), sdk.ExecuteRequest{Timeout: 10 * time.Millisecond})
	fmt.Println(result.Status, err)

	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = execute(gone, sdk.ExecuteRequest{Timeout: time.Hour})
	fmt.Println(err)
	// Output:
	// timeout <nil>
	// context canceled
}

// shelf is the part of a provider that makes instances.
type shelf struct {
	made map[string]sdk.Instance // by key
}

func (s *shelf) Create(_ context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if made, ok := s.made[req.IdempotencyKey]; ok {
		return made, nil
	}
	made := sdk.Instance{ID: fmt.Sprintf("box-%d", len(s.made)+1), Template: req.Template, Labels: req.Labels}
	s.made[req.IdempotencyKey] = made
	return made, nil
}

// A creation whose answer was lost is asked for once more, with the same key. It gives
// the instance of the first time and no second one.
func ExampleCreateRequest_idempotencyKey() {
	boxes := &shelf{made: map[string]sdk.Instance{}}
	for _, key := range []string{"k1", "k1", "k2"} {
		made, err := boxes.Create(context.Background(), sdk.CreateRequest{Template: "python", IdempotencyKey: key})
		fmt.Println(key, made.ID, err)
	}
	// Output:
	// k1 box-1 <nil>
	// k1 box-1 <nil>
	// k2 box-2 <nil>
}
