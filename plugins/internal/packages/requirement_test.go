package packages_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/packages"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestRequirementsAreNamesOfPackages(t *testing.T) {
	for requirement, ok := range map[string]bool{
		"numpy": true, "numpy==2.1": true, "requests[socks, security]>=2,<3": true, "zope.interface ~= 5.0": true, "a_b-c": true, "x==1.*": true, "x===1.0+local": true,
		"": false, "-r x": false, "--index-url=http://x": false, "git+https://x/y": false, "https://x/y.whl": false, "./x": false, "/x": false, "../x": false, "x @ https://y": false,
		"x; python_version<'3'": false, "x.whl": false, "X.TAR.GZ": false, "x\n-r y": false, "x --hash=y": false, "x==": false, "x[": false, "ünï": false, "x==$(id)": false,
	} {
		assert.Check(t, is.Equal(packages.Check(sdk.Python, []string{requirement}) == nil, ok), requirement)
	}
	for requirement, ok := range map[string]bool{
		"lodash": true, "lodash@4.17": true, "@scope/name@^1": true, "x@>=1 <2": true, "x@latest": true,
		"": false, "-g": false, "user/repo": false, "git+ssh://x": false, "x@https://y": false, "x@file:..": false, "x@npm:y": false, "../x": false, ".": false, "x@../y": false,
	} {
		assert.Check(t, is.Equal(packages.Check(sdk.JavaScript, []string{requirement}) == nil, ok), requirement)
	}
	assert.ErrorIs(t, packages.Check(sdk.Python, nil), &sdk.Error{Code: sdk.CodeInvalidRequest})
	assert.ErrorIs(t, packages.Check(sdk.Python, strings.Split(strings.Repeat("x,", 300), ",")), &sdk.Error{Code: sdk.CodeInvalidRequest})
}

func TestTheSameSetHasOneForm(t *testing.T) {
	for name, test := range map[string]struct{ asked, want []string }{
		"order and repetition":     {[]string{"b", "a", "b"}, []string{"a", "b"}},
		"names":                    {[]string{"Zope.Interface", "a__B"}, []string{"a-b", "zope-interface"}},
		"spaces":                   {[]string{"x >= 1, < 2", "y [ a , b ] == 1.0"}, []string{"x>=1,<2", "y[a,b]==1.0"}},
		"a version stays as it is": {[]string{"A==1.0_RC.1"}, []string{"a==1.0_RC.1"}},
		"other versions":           {[]string{"a==1", "a==2"}, []string{"a==1", "a==2"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := packages.Set(sdk.Python, test.asked)
			assert.DeepEqual(t, got, test.want)
			assert.NilError(t, packages.Check(sdk.Python, got))
		})
	}
	assert.DeepEqual(t, packages.Set(sdk.JavaScript, []string{"x@>=1 <2", "a_b"}), []string{"a_b", "x@>=1 <2"})
}

func FuzzARequirementIsNoOption(f *testing.F) {
	f.Add("numpy==2.1")
	f.Fuzz(func(t *testing.T, text string) {
		if packages.Check(sdk.Python, []string{text}) == nil && (strings.HasPrefix(text, "-") || strings.ContainsAny(text, "/\\:@\n;")) {
			t.Errorf("%q", text)
		}
	})
}
