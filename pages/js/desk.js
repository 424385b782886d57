export default {
  "other": ["中文", "English"],
  "theme": ["Light or dark", "浅色或深色"],
  "line.live": ["Live", "实时"],
  "line.connecting": ["Connecting", "连接中"],
  "line.lost": ["Connection lost", "连接中断"],
  "line.asked": ["Asks now and then", "定时查询"],
  "bar.pages": ["Pages", "页面"],
  "bar.sale": ["Sale", "活动"],
  "bar.board": ["Board", "看板"],
  "bar.storm": ["Storm", "风暴"],
  "locked": ["For administrators", "仅限管理员"],
  "locked.no_link": ["Open the link that the demo prints, or paste an administrator's token.", "请打开演示打印的链接，或粘贴管理员令牌。"],
  "locked.invalid_code": ["This link has been used, or is of an earlier start. Start the demo again, or paste a token.", "此链接已被使用，或属于之前的启动。请重新启动演示，或粘贴令牌。"],
  "locked.invalid_token": ["The token is not valid, or has run out.", "令牌无效或已过期。"],
  "locked.forbidden": ["This token is no administrator's.", "这不是管理员的令牌。"],
  "locked.token": ["Token", "令牌"],
  "locked.enter": ["Enter", "进入"]
}
