-- The prompt of a request and its score, as the in-process classifier finds them; the second part.

-- The prompt.

local TEXT_OR_CONTENT = { text = true, content = true }

local function items(s, i)
  local places, n = {}, 0
  i = i + 1
  while true do
    local _, _, p = find(s, "^[%s,]*()[^%s,%]]", i)
    if not p then return places, n end
    n = n + 1
    places[n] = p
    i = value_end(s, p)
    if not i then return places, n end
  end
end

local function collect(s, i, texts, left, backwards, depth)
  local c = byte(s, i)
  if c == 34 then
    local text = text_at(s, i)
    if text ~= "" then
      texts[#texts + 1] = text
      left = left - characters(text)
    end
  elseif c == 91 and depth < 4 then
    local first = match(s, "^%[%s*([%d%-])", i)
    if first then return left end -- token ids
    local places, n = items(s, i)
    local from, to, step = 1, min(n, ITEMS_AT_EACH_END), 1
    if backwards then from, to, step = n, max(1, n - ITEMS_AT_EACH_END + 1), -1 end
    for k = from, to, step do
      left = collect(s, places[k], texts, left, backwards, depth + 1)
      if left <= 0 then break end
    end
  elseif c == 123 then
    local found = members(s, i, TEXT_OR_CONTENT)
    if found.text and byte(s, found.text) == 34 then
      local text = text_at(s, found.text)
      texts[#texts + 1] = text
      left = left - characters(text)
    elseif found.content then
      left = collect(s, found.content, texts, left, backwards, depth + 1)
    end
  end
  return left
end

local function gather(s, places, backwards)
  local texts, left = {}, WINDOW
  local from, to, step = 1, #PROMPT_MEMBERS, 1
  if backwards then from, to, step = to, 1, -1 end
  for k = from, to, step do
    local place = places[PROMPT_MEMBERS[k]]
    if place then left = collect(s, place, texts, left, backwards, 1) end
    if left <= 0 then break end
  end
  return texts, left
end

local function prompt_text(s, places)
  local first, left = gather(s, places, false)
  if left > 0 then return concat(first, "\n") end
  local last = gather(s, places, true)
  if #first == 1 and #last == 1 and first[1] == last[1] then
    local text = first[1]
    if characters(text) <= 2 * WINDOW then return text end
    return first_characters(text, WINDOW) .. "\n" .. last_characters(text, WINDOW)
  end
  local n = #last
  for k = 1, floor(n / 2) do last[k], last[n + 1 - k] = last[n + 1 - k], last[k] end
  return first_characters(concat(first, "\n"), WINDOW) .. "\n" .. last_characters(concat(last, "\n"), WINDOW)
end

-- The score.

local function is_code(line)
  local start = match(line, "^%s*(.*)$")
  local candidates = STARTS[sub(start, 1, 1)]
  if not candidates then return false end
  for k = 1, #candidates do
    local candidate = candidates[k]
    if sub(start, 1, #candidate) == candidate then
      for j = 1, #STARTS_OF_PROSE do
        local prose = STARTS_OF_PROSE[j]
        if sub(start, 1, #prose) == prose then
          return CODE_LINE_ENDS[sub(start, -1)] == true or find(start, " import ", 1, true) ~= nil
        end
      end
      return true
    end
  end
  return false
end

local function code_lines(raw)
  if find(raw, "\r", 1, true) then raw = gsub(gsub(raw, "\r\n", "\n"), "\r", "\n") end
  local starts, n, i = {}, 0, 1
  while i <= #raw do
    n = n + 1
    starts[n] = i
    i = (find(raw, "\n", i, true) or #raw) + 1
  end
  local half, found = LINES / 2, 0
  for k = 1, n do
    if n <= LINES or k <= half or k > n - half then
      local stop = k < n and starts[k + 1] - 2 or (byte(raw, #raw) == 10 and #raw - 1 or #raw)
      if is_code(sub(raw, starts[k], stop)) then
        found = found + 1
        if found == MOST_CODE_LINES then return found end
      end
    end
  end
  return found
end

local function score(text)
  if not find(text, "%S") then return "unsure" end
  local raw = lower(text)
  local lines = code_lines(raw)
  local structured = lines
  if find(raw, "```", 1, true) then structured = structured + FENCE_SCORE end
  if structured > MOST_CHAT_WORDS then return "structured" end
  local density = #gsub(raw, NOT_SYMBOLS, "") / #raw
  if density > DENSE then structured = structured + (density < DENSER and 1 or 2) end
  local chat = (lines == 0 and density < PLAIN) and PLAIN_SCORE or 0
  if structured > MOST_CHAT_WORDS + chat then return "structured" end
  local languages, nouns, verbs, maths, chats, seen = 0, 0, 0, 0, 0, {}
  for word in gmatch(raw, WORD) do
    local counts = WORDS[word]
    if counts and not seen[word] then
      seen[word] = true
      languages, nouns, verbs = languages + counts[1], nouns + counts[2], verbs + counts[3]
      maths, chats = maths + counts[4], chats + counts[5]
    end
  end
  structured = structured + min(MOST_FROM_LANGUAGES, LANGUAGE_SCORE * languages)
  if nouns > 0 then
    structured = structured + min(MOST_FROM_NOUNS, NOUN_SCORE * nouns) + (verbs > 0 and VERB_SCORE or 0)
  end
  structured = structured + min(MOST_FROM_MATH, MATH_SCORE * maths)
  chat = chat + min(MOST_CHAT_WORDS, chats)
  if structured >= STRUCTURED_FROM and structured > chat then return "structured" end
  if chat >= CHAT_FROM and chat > structured then return "chat" end
  return "unsure"
end
