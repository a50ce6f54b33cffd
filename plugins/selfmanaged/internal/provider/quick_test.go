package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

type rec struct{ out, err bytes.Buffer }

func (r *rec) Stdout(p []byte) error { r.out.Write(p); return nil }
func (r *rec) Stderr(p []byte) error { r.err.Write(p); return nil }

func TestQuick(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command("go", "test", "-c", "-o", "/dev/null").CombinedOutput()
	_ = out
	p := New(hclog.New(&hclog.LoggerOptions{Level: hclog.Debug})).(*Provider)
	set, probs := p.Describe().Schema.Resolve(map[string]any{"pool_size": 2, "runsc": "/work/main/bin/runsc", "guest": "/work/main/bin/sandbox-guest"})
	assert.Equal(t, len(probs), 0)
	ctx := context.Background()
	err = p.Configure(ctx, sdk.ConfigureRequest{Label: "x", BrokerID: "b", StateDir: dir, Settings: set})
	assert.NilError(t, err)
	defer func() { fmt.Println("close", p.Close(ctx)) }()
	run := func(template string, lang sdk.Language, code string, args string) {
		t0 := time.Now()
		i, err := p.Create(ctx, sdk.CreateRequest{Template: template})
		assert.NilError(t, err)
		t1 := time.Now()
		var raw json.RawMessage
		if args != "" {
			raw = json.RawMessage(args)
		}
		for n := 0; n < 2; n++ {
			t1 = time.Now()
			var r rec
			res, err := p.Execute(ctx, sdk.ExecuteRequest{InstanceID: i.ID, Language: lang, Code: code, Arguments: raw, Timeout: 3 * time.Second, OutputLimit: 1 << 20}, &r)
			fmt.Printf("%s create %v exec %v err %v\n  res %+v result=%s\n  out %.300q err %.600q\n", template, t1.Sub(t0), time.Since(t1), err, res, res.Result, r.out.String(), r.err.String())
		}
		assert.NilError(t, p.Destroy(ctx, i.ID))
	}
	time.Sleep(1000 * time.Millisecond)
	fmt.Println(p.Health(ctx))
	run("python", "python", "def main(name: str, count: int) -> dict: return {\"message\": f\"Hello {name}!\" * count}", `{"name":"World","count":3}`)
	run("nodejs", "javascript", "function main(args){ return {message: `Hello ${args.name}!`.repeat(args.count)} }", `{"name":"World","count":3}`)
	run("python", "python", "import sys,os\nprint(os.uname(), os.getpid(), os.listdir('/'), open('/proc/meminfo').read())\nsys.exit(3)", "")
	run("python", "python", "def f():\n  raise ValueError('x')\nf()", "")
	run("nodejs", "javascript", "console.log('hi'); \nfunction f(){ throw new Error('boom')}\nf()", "")
	run("nodejs", "javascript", "import fs from 'node:fs'; const x = await Promise.resolve(3); console.log(x, import.meta.url)", "")
	run("bash", "bash", "echo hi; id; ls -la /proc/self/fd; env; nosuch; exit 4", "")
	run("python", "python", "while True: pass", "")
	run("python", "python", "b=bytearray(2<<30)\nprint(len(b))", "")
	run("bash", "bash", ":(){ :|:& };:; wait; sleep 20", "")
	fmt.Println(p.Health(ctx))
	_ = os.Stdout
}
