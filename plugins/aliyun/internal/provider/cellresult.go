package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/guest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// take keeps what a cell has come to, and passes on what it shows. Output that did not
// go to the files comes this way.
func (r *cellRun) take(result agentrun.CodeResult) error {
	for _, item := range result.Results {
		var err error
		switch item.Type {
		case "stdout":
			err = r.out.Stdout([]byte(item.Text))
		case "stderr":
			err = r.out.Stderr([]byte(item.Text))
		case "result":
			err = r.show(item)
		}
		if err != nil {
			return err
		}
	}
	if failed, ok := failure(result); ok {
		r.failed = &failed
	}
	return nil
}

// show passes on a value, in all its forms.
func (r *cellRun) show(item agentrun.Item) error {
	if r.req.Artifacts == nil {
		return nil
	}
	forms := item.Data
	if len(forms) == 0 {
		text, _ := json.Marshal(item.Text) // a string cannot fail
		forms = map[string]json.RawMessage{"text/plain": text}
	}
	r.groups++
	for _, mime := range slices.Sorted(maps.Keys(forms)) {
		data := []byte(forms[mime])
		var text string
		if json.Unmarshal(data, &text) == nil {
			data = decoded(mime, text)
		}
		if err := r.out.Artifact(sdk.Artifact{Kind: sdk.ArtifactResult, MIMEType: mime, Data: data, Size: int64(len(data)), Group: r.groups}); err != nil {
			return err
		}
	}
	return nil
}

// decoded is the data of a form that came as a text.
func decoded(mime, text string) []byte {
	if strings.HasPrefix(mime, "text/") || strings.HasPrefix(mime, "image/svg") || mime == "application/json" || mime == "application/javascript" {
		return []byte(text)
	}
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return []byte(text)
	}
	return data
}

// settle says what became of code that came to its end.
func (r *cellRun) settle(result *sdk.ExecuteResult) {
	result.Result = r.value
	if r.failed == nil {
		if r.req.Arguments != nil && r.value == nil {
			result.Status, result.ExitCode, result.Detail = sdk.StatusFailed, 1, noResult
		}
		return
	}
	result.Result = nil
	result.ExitCode = exitCode(*r.failed)
	if result.ExitCode != 0 {
		result.Status = sdk.StatusFailed
	}
	if name, _ := r.failed.Kind(); name == "MemoryError" {
		result.Status = sdk.StatusOutOfMemory
	}
}

// exitCode is that of a process that ends with such an error.
func exitCode(item agentrun.Item) int {
	switch name, value := item.Kind(); name {
	case "SystemExit":
		if value == "" || value == "None" {
			return 0
		}
		if code, err := strconv.Atoi(value); err == nil {
			return code & 0xff
		}
	case "KeyboardInterrupt":
		return 130
	}
	return 1
}

// colours are what terminals show as such.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// traceOf is what a process would print at its end.
func traceOf(item agentrun.Item) string {
	name, value := item.Kind()
	text := strings.TrimRight(colours.ReplaceAllString(item.Trace(), ""), "\n")
	if name == "SystemExit" {
		text = value
		if _, err := strconv.Atoi(value); err == nil || value == "None" {
			return ""
		}
	}
	if text == "" {
		return ""
	}
	return text + "\n"
}

// timedOut says whether the service has ended code at its own limit.
func timedOut(err error) bool {
	f, ok := errors.AsType[*agentrun.Failure](err)
	return ok && (f.Status == http.StatusGatewayTimeout || f.Status == http.StatusRequestTimeout)
}

// ended says what became of code that did not come to its end, and sees to it that the
// context can be used.
func (r *cellRun) ended(ctx context.Context, result sdk.ExecuteResult, end ending, cut bool) (sdk.ExecuteResult, error) {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*cleanUp)
	defer cancel()
	select {
	case <-r.renewed:
		if _, _, err := r.p.use(r.box.ID, r.req.ContextID); err != nil {
			return result, err
		}
		result.Status, result.ExitCode, result.Detail = sdk.StatusFailed, 128+9, restarted
		return result, nil
	default:
	}
	stopped := end.cause
	if stopped == nil && timedOut(end.err) {
		stopped = errCellTimeout
	}
	dead := false
	if stopped == nil {
		err := guest.Poke(clean, r.box, r.name, "")
		if dead = errors.Is(err, guest.ErrEnded); !dead && isMissing(err) {
			return result, errNoInstance
		}
	}
	drained := r.drain(clean)
	if !end.kept {
		if err := r.p.restart(clean, r.box, r.req.ContextID); err != nil {
			return result, err
		}
		result.ExitCode, result.Detail = 128+9, afresh
	} else if r.failed != nil {
		result.ExitCode = exitCode(*r.failed)
	}
	switch {
	case dead:
		result.Status, result.ExitCode, result.Detail = sdk.StatusFailed, max(result.ExitCode, 1), hasEnded
		if r.kills > r.saved.Kills {
			result.Status = sdk.StatusOutOfMemory
		}
	case errors.Is(stopped, errCellTimeout):
		result.Status = sdk.StatusTimeout
		if cut {
			result.Detail = strings.TrimPrefix(result.Detail+"; "+cutShorter, "; ")
		}
	case errors.Is(stopped, errInterrupted):
		result.Status = sdk.StatusCancelled
	case stopped != nil: // its caller has gone
		return result, stopped
	default:
		return result, r.p.explain(ctx, end.err, sdk.CodeUnavailable, "run code")
	}
	return result, drained
}
