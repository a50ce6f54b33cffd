package e2e_test

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// Files outlive an execution, and nothing of the interpreter does. These are the
// six examples that the fourth seed gives of that, but for the packages to
// install.
func TestTheWorkspacePersistsAndTheInterpreterDoesNot(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, testWorkspace)
}

func testWorkspace(t *testing.T, b *harness.Broker) {
	python := func(code string) harness.Execution {
		t.Helper()
		return b.Execute(t, map[string]any{"language": "python", "session_id": "task", "code": code})
	}
	assert.Equal(t, python("with open('/workspace/data.txt', 'w') as f:\n    f.write('Important data')\nprint('File written')\n").Stdout, "File written\n")
	assert.Equal(t, python("with open('/workspace/data.txt', 'r') as f:\n    data = f.read()\nprint(f'Read: {data}')  # Works!\n").Stdout, "Read: Important data\n")

	assert.Equal(t, python("x = 42").Status, "succeeded")
	e := python("print(x)")
	assert.Equal(t, e.ExitCode, 1)
	assert.Check(t, is.Contains(e.Stderr, "NameError: name 'x' is not defined"))

	assert.Equal(t, python("import json").Status, "succeeded")
	e = python("print(json.dumps({'key': 'value'}))")
	assert.Equal(t, e.ExitCode, 1)
	assert.Check(t, is.Contains(e.Stderr, "NameError: name 'json' is not defined"))

	assert.Equal(t, python("\nprint(\"Hello, World!\")\nfor i in range(3):\n    print(f\"Count: {i}\")\n").Stdout, "Hello, World!\nCount: 0\nCount: 1\nCount: 2\n")

	assert.Equal(t, python(`
import json
data = {"users": ["alice", "bob", "charlie"], "count": 3}
with open('/workspace/users.json', 'w') as f:
    json.dump(data, f)
print("Data saved successfully")
`).Stdout, "Data saved successfully\n")
	assert.Equal(t, python(`
import json
with open('/workspace/users.json', 'r') as f:
    data = json.load(f)
print(f"Found {data['count']} users")
for user in data['users']:
    print(f"- {user}")
`).Stdout, "Found 3 users\n- alice\n- bob\n- charlie\n")
	assert.Equal(t, python(`
import json
with open('/workspace/users.json', 'r') as f:
    data = json.load(f)
report = f"User Report\n{'='*50}\n"
report += f"Total users: {data['count']}\n"
report += "Users:\n"
for user in data['users']:
    report += f" - {user}\n"
print(report)
`).Stdout, "User Report\n==================================================\nTotal users: 3\nUsers:\n - alice\n - bob\n - charlie\n\n")

	e = python("print(\"Before error\")\nraise ValueError(\"Test error\")")
	assert.Equal(t, e.ExitCode, 1)
	assert.Equal(t, e.Stdout, "Before error\n")
	assert.Check(t, is.Contains(e.Stderr, "ValueError: Test error\n"))
}
