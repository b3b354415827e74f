"""The words and line beginnings that tell code, maths and prose apart; lower case, ASCII."""

from __future__ import annotations

__all__ = [
    "CHAT_WORDS",
    "CODE_NOUNS",
    "CODE_VERBS",
    "LANGUAGES",
    "LINE_STARTS",
    "LINE_WORDS_THAT_ARE_PROSE",
    "MATH_WORDS",
]

LANGUAGES = frozenset(
    b"""python javascript typescript java c++ c# rust golang kotlin swift scala haskell php ruby perl bash powershell
    sql mysql postgresql postgres sqlite html css react django flask fastapi pandas numpy pytorch tensorflow cuda
    terraform kubernetes dockerfile yaml json xml regex verilog matlab julia lua assembly latex graphql webpack npm
    pytest junit makefile cmake solidity cobol fortran""".split()
)
CODE_NOUNS = frozenset(
    b"""function functions method class script snippet code codebase algorithm api endpoint parser compiler query
    unittest test tests bug traceback exception stacktrace refactor debug implement deserialize async mutex pointer
    struct enum interface recursion leetcode array hashmap linked endpoint schema migration decorator lambda loop
    variable variables integer string boolean dataframe repository commit merge rebase docstring runtime
    syntaxerror typeerror valueerror nullpointerexception segfault regex cli backend frontend""".split()
)
CODE_VERBS = frozenset(
    b"implement refactor debug optimize compile parse fix rewrite port vectorize write create generate convert add"
    b" build code program".split()
)
MATH_WORDS = frozenset(
    b"""prove theorem lemma integral derivative equation equations polynomial matrix eigenvalue eigenvalues probability
    triangle modulo divisible integers prime factorial hypotenuse quadratic calculus algebra geometry combinatorics
    solve simplify evaluate differentiate integrate arithmetic logarithm convex bijection""".split()
)
CHAT_WORDS = frozenset(
    b"""story poem essay letter email speech song lyrics novel character characters recipe travel trip itinerary
    advice feel feeling feelings friend friends love birthday wedding summarize summarise summary paragraph article blog
    review opinion history culture persuasive tone polite invitation slogan caption tagline brainstorm rephrase
    paraphrase translate roleplay imagine dialogue biography holiday weekend restaurant movie book meaning explain
    describe discuss tell recommend cover headline toast motivation interview garden cooking dinner health parents
    children kids dog cat museum press announcement apology""".split()
)
LINE_STARTS = (
    b"def ", b"class ", b"import ", b"from ", b"#include", b"public ", b"private ", b"static ", b"fn ", b"func ",
    b"let ", b"const ", b"var ", b"function ", b"return ", b"select ", b"create table", b"insert into", b"package ",
    b"using ", b"namespace ", b"@", b"<?php", b"<!doctype", b"<html", b"<div", b"for (", b"if (", b"while (", b"try:",
    b"except", b"async ", b"await ", b"struct ", b"impl ", b"#!/", b"$ ", b">>> ", b"+++", b"--- a/", b"@@ ", b"//",
    b"/*", b"} else", b"elif ", b"module ", b"interface ", b"type ", b"enum ", b"apiversion:", b"traceback (most",
    b"file \"", b"error:", b"\\begin{", b"\\[", b"$$",
)  # fmt: skip
LINE_WORDS_THAT_ARE_PROSE = (b"from ", b"let ", b"using ", b"return ", b"type ", b"class ", b"import ", b"for (")
"""Line beginnings that prose has too: they count only where the line goes on like code."""
