# Finds in a syntax tree what the code policy objects to. It runs in the
# interpreter that then runs the same tree, so the two cannot disagree about what
# the code says. It knows how Python binds names; which names matter is in the
# rules that it is given.
import ast
import posixpath

MODULE, CLASS, FUNCTION = range(3)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ALIASES = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
LEAVES = (str, type(None), ast.Constant, ast.Lambda)  # that bind nothing outside
CAPTURES = tuple(getattr(ast, t) for t in ("ExceptHandler", "MatchAs", "MatchStar") if hasattr(ast, t))

# Other names of the same thing. A module behind an underscore is taken for the
# one without by itself.
SAME = {
    "posix": "os", "nt": "os", "_io": "io", "_pyio": "io", "_thread": "threading", "_posixsubprocess": "subprocess",
    "io.open": "builtins.open", "io.FileIO": "builtins.open", "io.open_code": "builtins.open",
    "codecs.open": "builtins.open", "os.open": "builtins.open",
    "builtins.__builtins__": "builtins", "importlib.__import__": "builtins.__import__",
    "pathlib.PosixPath": "pathlib.Path",
}
# Modules that lead to others, whoever hands them out.
GATES = {"sys", "builtins", "importlib", "io"}
IMPORTERS = {"builtins.__import__", "importlib.import_module"}
PATH_TAKERS = {"builtins.open", "pathlib.Path", "os.listdir", "os.scandir"}


class Scope:
    __slots__ = ("parent", "kind", "names", "resolved", "firm")

    def __init__(self, parent, kind):
        self.parent, self.kind = parent, kind
        self.names = {}  # name: what it is bound to, paths and expressions
        self.resolved = {}  # name: paths
        self.firm = {}  # name: where a module has certainly bound it


def constant(node):
    """The string that an expression surely is, or None."""
    if isinstance(node, ast.Constant):
        value = node.value
        return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant(node.left), constant(node.right)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.JoinedStr):
        parts = [constant(p.value if isinstance(p, ast.FormattedValue) else p) for p in node.values]
        return None if None in parts else "".join(parts)
    return None


def children(node):
    found = []
    for field in getattr(node, "_fields", ()):
        value = getattr(node, field, None)
        if value.__class__ is list:
            found += value
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def prefixes(path):
    """a.b.c, a.b, a"""
    while path:
        yield path
        path = path.rpartition(".")[0]


def arguments(args):
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return [a for a in every if a is not None]


class Policy:
    def __init__(self, rules):
        self.limit = rules["limit"]
        self.enforce = rules["mode"] == "enforce"
        self.imports = set(rules["imports"])
        self.calls = {c if "." in c else "builtins." + c for c in rules["calls"]}
        self.families = tuple(c[:-1] for c in self.calls if c.endswith("*"))
        self.attributes = set(rules["attributes"])
        self.paths = rules["paths"]
        self.allowed = set(rules["allowed"])
        tops = {m.partition(".")[0] for m in self.imports}
        # Modules that count as imported when another module hands them out.
        self.exported = GATES | {m for m in self.imports if "." not in m}
        # Whatever a rule finds contains one of these names.
        self.words = self.attributes | {"getattr", "vars", "__dict__", "import_module", "__builtins__", "__import__"}
        self.words |= tops | {"_" + t for t in tops}
        self.words.update(*(p.split(".") for p in [*SAME, *PATH_TAKERS]))
        for call in self.calls:
            top, _, rest = call.partition(".")
            self.words.add(rest if top == "builtins" else top)

    def analyse(self, tree, program, source):
        """The findings in a tree and the program compiled from it, in order."""
        if not self.concerns(program):
            return []
        try:
            return Analysis(self, tree, source).run()
        except Exception as e:  # RecursionError, for one
            if "python.unanalysable" in self.allowed:
                return []
            return [finding(1, 0, "python.unanalysable", f"the code cannot be analysed: {type(e).__name__}", "")]

    def concerns(self, program):
        """Whether any rule may apply: most code names nothing that one is about."""
        code = [program]
        while code:
            c = code.pop()
            for name in c.co_names:
                if name in self.words or "." in name and not self.words.isdisjoint(name.split(".")):
                    return True
            code += [const for const in c.co_consts if isinstance(const, type(program))]
        return False


def finding(line, column, rule, message, text):
    before = text.encode(errors="replace")[:column].decode(errors="replace")
    return {"line": line, "column": len(before) + 1, "rule": rule, "message": ascii(message[:200])[1:-1]}


class Analysis:
    def __init__(self, policy, tree, source):
        self.policy = policy
        self.tree = tree
        self.source = source
        self.deleted = None  # names that the code unbinds somewhere
        self.found = {}  # line, column, rule: message
        self.pending = []  # scopes to look into, with their nodes

    def run(self):
        scope = Scope(None, MODULE)
        self.bind(scope, self.tree.body)
        self.settle(scope, self.tree.body)
        self.pending.append((scope, self.tree.body))
        while self.pending:
            self.check(*self.pending.pop())
        if not self.found:
            return []
        lines = self.source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        first = sorted(self.found.items())[: self.policy.limit]
        return [finding(line, column, rule, message, lines[line - 1]) for (line, column, rule), message in first]

    def report(self, node, rule, message):
        if rule not in self.policy.allowed:
            self.found.setdefault((node.lineno, node.col_offset, rule), message)

    # What names are bound to.

    def bind(self, scope, nodes):
        names, free, stack = scope.names, set(), list(nodes)
        while stack:
            n = stack.pop()
            kind = n.__class__
            if kind is ast.Name:
                if n.ctx.__class__ is not ast.Load:
                    names.setdefault(n.id, [])
            elif kind in LEAVES:
                pass
            elif kind in DEFINITIONS or kind is ast.ClassDef:
                names.setdefault(n.name, [])
            elif kind in COMPREHENSIONS:  # only := reaches out of it
                stack += [x.target for x in ast.walk(n) if isinstance(x, ast.NamedExpr)]
            elif kind is ast.Import:
                for a in n.names:
                    path = a.name if a.asname else a.name.partition(".")[0]
                    names.setdefault(a.asname or path, []).append(self.canonical(path))
            elif kind is ast.ImportFrom:
                self.bind_from(names, n)
            elif kind is ast.Global or kind is ast.Nonlocal:
                free.update(n.names)
            else:
                if kind is ast.Assign and n.value.__class__ in ALIASES:
                    for target in n.targets:
                        if target.__class__ is ast.Name:
                            names.setdefault(target.id, []).append(n.value)
                elif kind in CAPTURES and n.name:
                    names.setdefault(n.name, [])
                elif getattr(n, "rest", None):  # of a mapping pattern
                    names.setdefault(n.rest, [])
                stack += children(n)
        for name in free:
            names.pop(name, None)

    def bind_from(self, names, n):
        module = "" if n.level else self.canonical(n.module or "")
        for a in n.names:
            if a.name != "*":
                names.setdefault(a.asname or a.name, []).append(self.member(module, a.name))
                continue
            for call in self.policy.calls:
                of, _, name = call.rpartition(".")
                if of == module:
                    names.setdefault(name, []).append(call)

    def settle(self, scope, body):
        """Note which names a module binds for certain, from where on, and to what
        is no builtin. Elsewhere a call of such a name may be one of the builtin."""
        for n in body:
            if isinstance(n, (*DEFINITIONS, ast.ClassDef)):
                bound = [n.name]
            elif isinstance(n, ast.Assign) and isinstance(n.value, (ast.Lambda, ast.Call)):
                used = {x.id for x in ast.walk(n.value) if isinstance(x, ast.Name)}
                bound = [t.id for t in n.targets if isinstance(t, ast.Name) and t.id not in used]
            elif isinstance(n, (ast.Import, ast.ImportFrom)):
                bound = [(a.asname or a.name).partition(".")[0] for a in n.names]
            else:
                continue
            for name in bound:
                scope.firm.setdefault(name, (n.end_lineno, n.end_col_offset))

    def certain(self, scope, node):
        """Whether a module's name surely is bound where a node uses it."""
        firm = scope.firm.get(node.id)
        if firm is None or (node.lineno, node.col_offset) < firm:
            return False
        if self.deleted is None:
            self.deleted = {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)}
        return node.id not in self.deleted

    # What expressions stand for: paths such as os.system or builtins.eval.

    def member(self, module, name):
        """The path of a module's member, or what it is another name of."""
        path = f"{module}.{name}" if module else name
        if path in SAME:
            return SAME[path]
        if name == "__builtins__":
            return "builtins"
        plain = name.lstrip("_")
        if plain in self.policy.exported and module.partition(".")[0] != "builtins":
            return plain  # random._os is os
        return path

    def canonical(self, path):
        module = ""
        for name in path.split("."):
            module = self.member(module, name)
        return module

    def lookup(self, node, scope, called):
        name, inner = node.id, True
        while scope is not None:
            if name in scope.names and (inner or scope.kind != CLASS):
                paths = self.resolve(scope, name)
                # Outside of functions, a name may not be bound yet.
                doubt = scope.kind != FUNCTION and called and name in self.policy.words
                if doubt and not self.certain(scope, node):
                    return [*paths, "builtins." + name]
                return paths
            inner = False
            scope = scope.parent
        return ["builtins"] if name == "__builtins__" else ["builtins." + name]

    def resolve(self, scope, name):
        if name not in scope.resolved:
            scope.resolved[name] = []  # a name that stands for itself
            paths = []
            for source in scope.names[name]:
                paths += [source] if isinstance(source, str) else self.expand(source, scope)
            scope.resolved[name] = sorted(set(paths))[:100]
        return scope.resolved[name]

    def expand(self, node, scope, called=False):
        """The paths that an expression may stand for."""
        names = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            # Of a builtin function nobody wants another attribute.
            paths = self.lookup(node, scope, called and not names or bool(names) and names[-1].startswith("__"))
        elif isinstance(node, ast.NamedExpr):
            paths = self.expand(node.value, scope, called)
        elif isinstance(node, ast.Call):
            paths = self.called(node, scope)
        elif isinstance(node, ast.Subscript):
            key, paths = constant(node.slice), []
            for p in self.expand(node.value, scope) if key else []:
                if p == "sys.modules":
                    paths.append(self.canonical(key))
                elif p == "builtins" or p.endswith(".__dict__"):
                    paths.append(self.member(p.removesuffix(".__dict__"), key))
        else:
            paths = []
        for name in reversed(names):
            paths = [self.member(p, name) for p in paths]
        return paths

    def called(self, node, scope):
        """The paths that the value of a call may stand for."""
        paths, first = [], constant(node.args[0]) if node.args else None
        for p in self.expand(node.func, scope, True):
            if p in IMPORTERS and first:
                name = first.partition(".")[0] if p == "builtins.__import__" else first
                paths.append(self.canonical(name))
            elif p == "builtins.getattr" and len(node.args) > 1:
                name = constant(node.args[1])
                paths += [self.member(b, name) for b in self.expand(node.args[0], scope) if name]
            elif p == "builtins.vars" and node.args:
                paths += [b + ".__dict__" for b in self.expand(node.args[0], scope)]
        return paths

    # What the rules say.

    def check(self, scope, nodes):
        stack = list(nodes)
        while stack:
            n = stack.pop()
            kind = n.__class__
            if kind in (ast.Name, ast.Attribute, ast.Subscript):
                stack += self.check_reference(n, scope, False)
            elif kind is ast.Call:
                self.check_call(n, scope)
                stack += self.check_reference(n.func, scope, True)
                stack += n.args
                stack += n.keywords
            elif kind is ast.Constant:
                pass
            elif kind in DEFINITIONS or kind is ast.Lambda:
                inner = Scope(scope, FUNCTION)
                body = n.body if isinstance(n.body, list) else [n.body]
                self.bind(inner, body)
                for a in arguments(n.args):
                    inner.names.setdefault(a.arg, [])
                    if a.annotation:
                        stack.append(a.annotation)
                stack += [*n.args.defaults, *filter(None, n.args.kw_defaults)]
                stack += getattr(n, "decorator_list", []) + getattr(n, "type_params", [])
                if getattr(n, "returns", None):
                    stack.append(n.returns)
                self.pending.append((inner, body))
            elif kind is ast.ClassDef:
                inner = Scope(scope, CLASS)
                self.bind(inner, n.body)
                stack += [*n.bases, *n.keywords, *n.decorator_list, *getattr(n, "type_params", [])]
                self.pending.append((inner, n.body))
            elif kind in COMPREHENSIONS:
                inner = Scope(scope, FUNCTION)
                self.bind(inner, [g.target for g in n.generators])
                stack.append(n.generators[0].iter)
                rest = [n.key, n.value] if kind is ast.DictComp else [n.elt]
                for i, g in enumerate(n.generators):
                    rest += [g.target, *g.ifs] + ([g.iter] if i else [])
                self.pending.append((inner, rest))
            elif kind is ast.Import:
                for a in n.names:
                    self.check_import(n, a.name)
            elif kind is ast.ImportFrom:
                self.check_from(n)
            else:
                stack += children(n)

    def check_import(self, node, name):
        path = self.canonical(name)
        for p in prefixes(path):
            rule = "python.import." + p
            if rule in self.policy.allowed:
                return
            if p in self.policy.imports:
                said = f"import of {name}" if path == name else f"import of {name}, which is {path}"
                self.report(node, rule, said)
                return

    def check_from(self, n):
        if n.level:
            return
        for a in n.names:
            whole = n.module if a.name == "*" else f"{n.module}.{a.name}"
            self.check_import(n, whole)
            if a.name != "*":
                self.check_use(n, self.member(self.canonical(n.module), a.name))
                self.check_attribute(n, a.name)

    def check_reference(self, node, scope, called):
        """Check a name, an attribute or an item, and return what is in it that
        is none of these."""
        if isinstance(node, ast.Name):
            if node.id in self.policy.attributes and node.id not in scope.names:
                self.check_attribute(node, node.id)
            for path in self.lookup(node, scope, called):
                self.check_use(node, path)
            return []
        paths = self.expand(node, scope, called)
        for path in paths:
            self.check_use(node, path)
            if isinstance(node, ast.Subscript):
                self.check_import(node, path)
        while isinstance(node, ast.Attribute):
            self.check_attribute(node, node.attr)
            module = node.attr.lstrip("_")
            if module in self.policy.imports:  # random._os
                for p in self.expand(node.value, scope):
                    if not p.startswith("builtins."):
                        self.check_import(node, f"{p}.{node.attr}")
            node = node.value
        if isinstance(node, ast.Subscript):
            return [node.value, node.slice]
        if isinstance(node, ast.Name):
            return [node] if node.id in self.policy.attributes else []
        return [node]

    def check_attribute(self, node, name):
        if name in self.policy.attributes:
            self.report(node, "python.attribute." + name, f"use of {name}")

    def check_use(self, node, path):
        top, _, rest = path.partition(".")
        if (rest.partition(".")[0] if top == "builtins" else top) not in self.policy.words:
            return
        for p in prefixes(path):
            rule = p if p in self.policy.calls else next((f + "*" for f in self.policy.families if p.startswith(f)), None)
            if rule:
                self.report(node, "python.call." + rule.removeprefix("builtins."), f"use of {p.removeprefix('builtins.')}")
                return
            if "." in p and p in self.policy.imports:
                self.check_import(node, p)
                return

    def check_call(self, n, scope):
        first = n.args[0] if n.args else next((k.value for k in n.keywords if k.arg in ("file", "name")), None)
        if first is None:
            return
        text = constant(first)
        for p in self.expand(n.func, scope, True):
            if p in IMPORTERS:
                if text is None:
                    self.report(n, "python.import.computed", "import of a module whose name is computed")
                else:
                    self.check_import(n, text)
            elif p == "builtins.getattr" and len(n.args) > 1:
                name = constant(n.args[1])
                if name is not None:
                    self.check_attribute(n, name)
                    for path in self.called(n, scope):
                        self.check_use(n, path)
                        if path in self.policy.imports:
                            self.check_import(n, path)
                elif any(b == "builtins" or b in self.policy.exported for b in self.expand(first, scope)):
                    self.report(n, "python.attribute.computed", "a computed attribute of a module")
            elif p in PATH_TAKERS and text is not None:
                self.check_file(n, text)

    def check_file(self, n, name):
        name = posixpath.normpath(name).replace("//", "/", 1)
        for root in self.policy.paths:
            if name == root or name.startswith(root + "/"):
                self.report(n, "python.path." + root[1:], f"use of {name}")
                return
